"""Deletes all that Redis holds about one device: claims, decisions, and the copy of its record."""

from collections.abc import Iterable

from catalog.chunks import chunked
from catalog.redis_connection import RedisClient
from engine.redis.claims import claims_key
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
    """Delete the device's copy, decisions and claims on these campaigns. Returns how many existed.

    With `only_count` nothing is deleted. Raises the errors of redis-py.
    """
    claims = claims_key(prefix.encode(), device.udid)
    found = 0
    for key in (copy_key(prefix, device), decisions_key(prefix.encode(), device)):
        found += int(await (redis.exists(key) if only_count else redis.unlink(key)))
    for campaigns in chunked(campaign_ids, _AT_ONCE):
        pipeline = redis.pipeline(transaction=False)
        for campaign in campaigns:
            field = str(campaign)
            pipeline.hexists(claims, field) if only_count else pipeline.hdel(claims, field)
        found += sum(await pipeline.execute())
    return found
