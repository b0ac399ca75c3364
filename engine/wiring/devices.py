"""What roles know of devices."""

import time

from engine.redis.devices import DeviceLookup
from engine.wiring.role import ProcessParts


def device_lookup(parts: ProcessParts) -> DeviceLookup:
    """The catalog's devices, through Redis."""
    return DeviceLookup(
        redis=parts.stores.redis,
        prefix=parts.settings.redis_prefix,
        database=parts.stores.database,
        metrics=parts.metrics,
        clock=time.time,
    )
