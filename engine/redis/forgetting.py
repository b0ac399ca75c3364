"""Deletes what Redis holds under one device's udid: claims, and the copy of its record."""

from collections.abc import Iterable

from catalog.chunks import chunked
from catalog.redis_connection import RedisClient
from engine.redis.claims import claims_key
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
    """Delete the copy of its record and its claims on these campaigns, unless `only_count`; how
    many there were. Raises what redis-py raises."""
    copy, claims = copy_key(prefix, device), claims_key(prefix.encode(), device.udid)
    found = int(await (redis.exists(copy) if only_count else redis.unlink(copy)))
    for campaigns in chunked(campaign_ids, _AT_ONCE):
        pipeline = redis.pipeline(transaction=False)
        for campaign in campaigns:
            field = str(campaign)
            pipeline.hexists(claims, field) if only_count else pipeline.hdel(claims, field)
        found += sum(await pipeline.execute())
    return found
