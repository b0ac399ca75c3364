"""Reads the claims of a device, to explain decisions. It changes no claim."""

import asyncio
import uuid
from collections.abc import Collection
from typing import Any

from catalog.redis_connection import RedisClient
from engine.redis.claims import claims_key
from engine.redis.devices import DeviceKey
from rules.explanation import HeldClaim

# The lengths of an entry and its owner, as scripts/claim.lua writes them; the newest entry is last.
_OWNER = 16
_ENTRY = 30


class ClaimReader:
    """Reads claims. `deadline` in seconds."""

    def __init__(self, *, redis: RedisClient, prefix: str, deadline: float) -> None:
        self._redis = redis
        self._prefix = prefix.encode()
        self._deadline = deadline

    async def newest(
        self, device: DeviceKey, campaign_ids: Collection[int]
    ) -> dict[int, HeldClaim]:
        """The device's newest claim by campaign, for campaigns with a claim.

        Raises RedisError, OSError or TimeoutError.
        """
        if not campaign_ids:
            return {}
        pipeline: Any = self._redis.pipeline(transaction=False)
        for campaign_id in campaign_ids:
            pipeline.hget(claims_key(self._prefix, device.udid), str(campaign_id))
        async with asyncio.timeout(self._deadline):
            values = await pipeline.execute()
        found = zip(campaign_ids, values, strict=True)
        return {number: _newest(value) for number, value in found if value}


def _newest(grants: bytes) -> HeldClaim:
    last = grants[-_ENTRY:]
    return HeldClaim(str(uuid.UUID(bytes=last[:_OWNER])), int(last[_OWNER:]) / 1000)
