"""One profile for all properties: no deadline (two busy cores), reproducible in CI."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "here", deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", settings.get_profile("here"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")
