"""Claims given back or shortened, once a customer's service has spoken: by their owner alone."""

import asyncio
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

from redis.asyncio import Redis, RedisCluster

from engine.redis.claims import claim_key, claim_tag

_SCRIPT = files("engine.redis").joinpath("scripts/settle.lua").read_text(encoding="utf-8")
_LARGEST_CALL = 1000  # claims a script call


class ClaimUpdate(NamedTuple):
    """What is to become of the claim of `owner` (16 bytes) on a campaign's device.

    It was taken for a detection at `detected_at` (epoch s; the whole second counts) with `delay`
    seconds, and is to forbid for `keep` seconds from then on; 0 gives it back.
    """

    campaign_id: int
    udid: str
    owner: bytes
    detected_at: float
    delay: int
    keep: int


class ClaimUpdater:
    """Settles claims, a batch in one round trip. Doing it again changes nothing more.

    Raises RedisError or TimeoutError.
    """

    def __init__(self, *, redis: Redis | RedisCluster, prefix: str, deadline: float) -> None:
        self._prefix = prefix.encode()
        self._deadline = deadline
        self._clustered = isinstance(redis, RedisCluster)
        self._script = redis.register_script(_SCRIPT)

    async def apply(self, settlements: Sequence[ClaimUpdate]) -> int:
        """How many claims it changed; the others belong to somebody else, or have gone."""
        by_tag: dict[int, list[ClaimUpdate]] = {}
        for each in settlements:
            tag = claim_tag(each.udid.encode()) if self._clustered else 0
            by_tag.setdefault(tag, []).append(each)
        changed = 0
        async with asyncio.timeout(self._deadline):
            for together in by_tag.values():
                for start in range(0, len(together), _LARGEST_CALL):
                    changed += sum(await self._call(together[start : start + _LARGEST_CALL]))
        return changed

    async def _call(self, settlements: Sequence[ClaimUpdate]) -> list[int]:
        keys = [claim_key(self._prefix, each.campaign_id, each.udid) for each in settlements]
        replies: list[int] = await self._script(keys=keys, args=[_told(e) for e in settlements])
        return replies


def _told(settlement: ClaimUpdate) -> bytes:
    return b"%b%014d%014d%014d" % (
        settlement.owner,
        round(settlement.detected_at * 1000),
        settlement.delay * 1000,
        settlement.keep * 1000,
    )
