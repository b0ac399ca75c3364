"""Decisions on their way from running triggers to people who watch them, through Redis.

A watcher says in a hash what it wants and that it is there, once a second; triggers look there once
a second, and write to the stream of each watcher. Streams and not pub/sub: they are the same on a
cluster, and what nobody reads is bounded and gone after ten seconds.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from catalog.redis_connection import RedisClient

MOST_WATCHERS = 8
_MOST_KEPT = 2000  # in a stream
_LEASE_MS = 10_000
_BLOCK_MS = 250


class TailFilter(msgspec.Struct, frozen=True, array_like=True):
    """What a watcher wants: all that is named has to fit. `beat` counts its signs of life."""

    beat: int
    company: int | None = None
    campaign: str | None = None
    udid: str | None = None
    reason: str | None = None


class CampaignOutcome(NamedTuple):
    """A campaign, and the reason that it met."""

    number: int
    name: str
    outcome: str


class TailedDecision(msgspec.Struct, frozen=True, array_like=True):
    """A decision as it happened, without the device. Times in epoch seconds.

    `left_out` counts the decisions since the one before that fitted, too, and were too many to be
    shown.
    """

    detected_at: float
    decided_at: float
    company: int | None
    venue: str
    beacon: str
    zone: int
    reason: str
    campaigns: list[CampaignOutcome]
    left_out: int


class WatchedTail(NamedTuple):
    """Where a watcher has read to."""

    watcher: str
    after: str = "0-0"


_encode = msgspec.msgpack.Encoder().encode
_read_filter = msgspec.msgpack.Decoder(TailFilter).decode
_read_decision = msgspec.msgpack.Decoder(TailedDecision).decode


class TailStore:
    """What triggers and watchers do with the streams. `deadline` in seconds.

    Raises RedisError, OSError or TimeoutError.
    """

    def __init__(self, *, redis: RedisClient, prefix: str, deadline: float) -> None:
        self._redis = redis
        self._watchers = f"{prefix}watchers"
        self._stream = f"{prefix}watched:"
        self._deadline = deadline

    async def watch(self, watcher: str, wanted: TailFilter) -> int:
        """Say that `watcher` is there. To be called once a second. Returns how many say so."""
        pipeline: Any = self._redis.pipeline(transaction=False)
        pipeline.hset(self._watchers, watcher, _encode(wanted))
        pipeline.pexpire(self._watchers, _LEASE_MS)
        pipeline.hlen(self._watchers)
        watching: int = (await self._run(pipeline))[-1]
        return watching

    async def leave(self, watcher: str) -> None:
        """Remove `watcher` and its stream."""
        pipeline: Any = self._redis.pipeline(transaction=False)
        pipeline.hdel(self._watchers, watcher)
        pipeline.delete(self._stream + watcher)
        await self._run(pipeline)

    async def forget(self, watchers: Sequence[str]) -> None:
        """These were killed; one that was only stopped for a while says again that it is there."""
        async with asyncio.timeout(self._deadline):
            await self._redis.hdel(self._watchers, *watchers)

    async def watchers(self) -> dict[str, TailFilter]:
        """All watchers by name, in the order of their names; killed ones until they are
        forgotten."""
        async with asyncio.timeout(self._deadline):
            found: Any = await self._redis.hgetall(self._watchers)
        wanted = {name.decode(): _filter(value) for name, value in sorted(found.items())}
        return {name: each for name, each in wanted.items() if each is not None}

    async def write(self, decisions: Mapping[str, Sequence[TailedDecision]]) -> None:
        """Add each watcher's decisions to its stream."""
        pipeline: Any = self._redis.pipeline(transaction=False)
        for watcher, listed in decisions.items():
            key = self._stream + watcher
            for each in listed:
                pipeline.xadd(key, {b"d": _encode(each)}, maxlen=_MOST_KEPT, approximate=True)
            pipeline.pexpire(key, _LEASE_MS)
        await self._run(pipeline)

    async def read(
        self, place: WatchedTail, *, most: int = _MOST_KEPT
    ) -> tuple[list[TailedDecision], WatchedTail]:
        """What is new for a watcher, `most` at once, and where to go on.

        Waits a quarter of a second for it.
        """
        key = self._stream + place.watcher
        async with asyncio.timeout(self._deadline + _BLOCK_MS / 1000):
            read = self._redis.xread({key: place.after}, count=most, block=_BLOCK_MS)
            streams: Any = await read
        # XREAD answers with a mapping under RESP3 and with pairs under RESP2.
        by_stream = streams.items() if isinstance(streams, dict) else streams or ()
        found = []
        for _, messages in by_stream:
            for number, fields in messages:
                place = place._replace(after=number.decode())
                with suppress(msgspec.DecodeError):  # of another version
                    found.append(_read_decision(fields[b"d"]))
        return found, place

    async def _run(self, pipeline: Any) -> list[Any]:
        async with asyncio.timeout(self._deadline):
            answers: list[Any] = await pipeline.execute()
        return answers


def _filter(written: bytes) -> TailFilter | None:
    """None for one of another version."""
    try:
        return _read_filter(written)
    except msgspec.DecodeError:
        return None
