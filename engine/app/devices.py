"""What roles know of devices."""

import time

from engine.app.role import Parts
from engine.state.devices import DeviceLookup


def device_lookup(parts: Parts) -> DeviceLookup:
    """The catalog's devices, through Redis."""
    return DeviceLookup(
        redis=parts.stores.redis,
        prefix=parts.settings.redis_prefix,
        database=parts.stores.database,
        metrics=parts.metrics,
        clock=time.time,
    )
