"""Stores the last decisions about each device in Redis, as one short list a device, for a day."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from catalog.database import chunked
from catalog.redis_connection import RedisClient
from engine.redis.claims import claim_tag
from engine.redis.devices import DeviceKey
from rules.model import StoredDecision

KEPT_SECONDS = 24 * 3600
_AT_ONCE = 100  # so that no other task waits for long
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(StoredDecision).decode


class DeviceDecision(NamedTuple):
    """A decision about a device."""

    device: DeviceKey
    decision: StoredDecision


class DecisionStore:
    """Stores and reads the last `most` decisions about each device. `deadline` is in seconds.

    Raises RedisError, OSError or TimeoutError.
    """

    def __init__(self, *, redis: RedisClient, prefix: str, most: int, deadline: float) -> None:
        self._prefix = prefix.encode()
        self._redis = redis
        self._most = most
        self._deadline = deadline

    async def keep(self, decisions: Sequence[DeviceDecision]) -> None:
        """Store decisions in their order; only the newest about each device are kept."""
        for part in chunked(decisions, _AT_ONCE):
            pipeline: Any = self._redis.pipeline(transaction=False)
            for device, decision in part:
                key = decisions_key(self._prefix, device)
                pipeline.lpush(key, _encode(decision))
                pipeline.ltrim(key, 0, self._most - 1)
                pipeline.expire(key, KEPT_SECONDS)
            async with asyncio.timeout(self._deadline):
                await pipeline.execute()

    async def read(self, device: DeviceKey) -> list[StoredDecision]:
        """The decisions about one device, the newest first."""
        async with asyncio.timeout(self._deadline):
            kept: list[Any] = await self._redis.lrange(decisions_key(self._prefix, device), 0, -1)
        found = []
        for each in kept:
            with suppress(msgspec.DecodeError):  # another version of the engine wrote it
                found.append(_decode(each))
        return found


def decisions_key(prefix: bytes, device: DeviceKey) -> bytes:
    """The key of the decisions about one device."""
    udid = device.udid.encode()
    return b"%bdecisions:{%d}:%d:%b" % (prefix, claim_tag(udid), device.company_id, udid)
