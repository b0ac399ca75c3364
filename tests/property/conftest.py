"""One profile for all properties: no deadline (two busy cores), reproducible in CI.

Mutation testing has its own, which differs in nothing that decides whether a test fails: the same
examples in each run, and no search for the smallest one that fails.
"""

import os

from hypothesis import HealthCheck, Phase, settings

settings.register_profile(
    "here", deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", settings.get_profile("here"), derandomize=True)
settings.register_profile(
    "mutation", settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("ci" if os.environ.get("CI") else "here")
