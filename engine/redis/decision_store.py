"""Stores the last decisions about each device in Redis, as one short list a device, for a day."""

import asyncio
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec
from redis.asyncio import RedisCluster

from catalog.chunks import chunked
from catalog.redis_connection import RedisClient
from engine.redis.claims import claim_tag
from engine.redis.devices import DeviceKey
from rules.model import StoredDecision

KEPT_SECONDS = 24 * 3600
_MOST_A_CALL = 500  # decisions, so that no call blocks Redis for long
_KEEP = files("engine.redis").joinpath("scripts/keep_decisions.lua").read_text(encoding="utf-8")
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
        self._clustered = isinstance(redis, RedisCluster)
        self._script = redis.register_script(_KEEP)

    async def keep(self, decisions: Sequence[DeviceDecision]) -> None:
        """Store decisions in their order; only the newest about each device are kept."""
        async with asyncio.timeout(self._deadline):
            for call in self._calls(decisions):
                await self._script(
                    keys=[decisions_key(self._prefix, each.device) for each in call],
                    args=[
                        self._most,
                        KEPT_SECONDS * 1000,
                        *(_encode(each.decision) for each in call),
                    ],
                )

    async def read(self, device: DeviceKey) -> list[StoredDecision]:
        """The decisions about one device, the newest first."""
        async with asyncio.timeout(self._deadline):
            kept: list[Any] = await self._redis.lrange(decisions_key(self._prefix, device), 0, -1)
        found = map(_read, kept)
        return [decision for decision in found if decision is not None]

    def _calls(self, decisions: Sequence[DeviceDecision]) -> Iterator[Sequence[DeviceDecision]]:
        """Script calls of bounded size, on a cluster with keys of one slot only."""
        by_tag: dict[int, list[DeviceDecision]] = {}
        for each in decisions:
            tag = claim_tag(each.device.udid.encode()) if self._clustered else 0
            by_tag.setdefault(tag, []).append(each)
        for listed in by_tag.values():
            yield from chunked(listed, _MOST_A_CALL)


def decisions_key(prefix: bytes, device: DeviceKey) -> bytes:
    """The key of the decisions about one device."""
    udid = device.udid.encode()
    return b"%bdecisions:{%d}:%d:%b" % (prefix, claim_tag(udid), device.company_id, udid)


def _read(kept: bytes) -> StoredDecision | None:
    """The decision, or None if another version of the engine wrote it."""
    try:
        return _decode(kept)
    except msgspec.DecodeError:
        return None
