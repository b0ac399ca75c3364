"""Deletes what Redis holds under one device's udid: claims, its last decisions, and the copy of
its record."""

from collections.abc import Iterable

from catalog.chunks import chunked
from catalog.redis_connection import RedisClient
from engine.redis.claims import claim_key
from engine.redis.decision_store import decisions_key
from engine.redis.devices import DeviceKey, copy_key

_AT_ONCE = 500


async def forget_in_redis(
    redis: RedisClient,
    prefix: str,
    device: DeviceKey,
    campaign_ids: Iterable[int],
    *,
    only_count: bool = False,
) -> int:
    """Delete its keys, unless `only_count`; how many there were. Raises what redis-py raises."""
    found = 0
    for keys in chunked(_keys(prefix, device, campaign_ids), _AT_ONCE):
        pipeline = redis.pipeline(transaction=False)
        for key in keys:
            pipeline.exists(key) if only_count else pipeline.unlink(key)
        found += sum(await pipeline.execute())
    return found


def _keys(prefix: str, device: DeviceKey, campaign_ids: Iterable[int]) -> list[bytes]:
    claims = [claim_key(prefix.encode(), each, device.udid) for each in campaign_ids]
    kept = decisions_key(prefix.encode(), device)
    return [copy_key(prefix, device).encode(), kept, *claims]
