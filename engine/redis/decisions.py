"""Decisions in Redis, for people: the last ones about each device, and those that somebody watches.

A device has one short list, for a day. A watcher renews its filter once a second, in a sorted set
by the time at which it ends. Triggers read the set once a second and write to the stream of each
watcher. Streams are used, not pub/sub: they work alike on a cluster, and a stream that nobody reads
is bounded and deleted after ten seconds.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from api.reports import LiveDecision, LiveDecisions
from catalog.database import chunked
from catalog.redis_connection import RedisClient
from engine.redis.claims import claim_tag
from engine.redis.devices import DeviceKey
from engine.redis.role_states import shared_time
from rules.model import StoredDecision

KEPT_SECONDS = 24 * 3600
_AT_ONCE = 100  # so that no other task waits for long
_encode = msgspec.msgpack.Encoder().encode
_read_stored = msgspec.msgpack.Decoder(StoredDecision).decode


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
                found.append(_read_stored(each))
        return found


def decisions_key(prefix: bytes, device: DeviceKey) -> bytes:
    """The key of the decisions about one device."""
    udid = device.udid.encode()
    return b"%bdecisions:{%d}:%d:%b" % (prefix, claim_tag(udid), device.company_id, udid)


_MOST_KEPT = 2000  # in a stream
_WATCH_SECONDS = 5.0
_LEASE_MS = 10_000
_BLOCK_MS = 250
_PAGE = 200
# A first request also gets the latest decisions that were passed on for other clients.
_BACK_SECONDS = 5


class TailFilter(msgspec.Struct, frozen=True, array_like=True):
    """The filter of the watcher `name`: every field that is set has to match."""

    name: str
    company: int | None = None
    campaign: str | None = None
    udid: str | None = None
    reason: str | None = None


_read_filter = msgspec.msgpack.Decoder(TailFilter).decode
_read_decision = msgspec.msgpack.Decoder(LiveDecision).decode


class TailStore:
    """Both ends of the tail. `deadline` in seconds. Raises RedisError, OSError or TimeoutError."""

    def __init__(self, *, redis: RedisClient, prefix: str, deadline: float) -> None:
        self._redis = redis
        self._watchers = f"{prefix}watching"
        self._stream = f"{prefix}watched:"
        self._deadline = deadline

    async def watch(self, wanted: TailFilter) -> None:
        """Register for five seconds, or renew that."""
        async with asyncio.timeout(self._deadline):
            now = await shared_time(self._redis)
            pipeline: Any = self._redis.pipeline(transaction=False)
            pipeline.zadd(self._watchers, {_encode(wanted): now + _WATCH_SECONDS})
            pipeline.zremrangebyscore(self._watchers, "-inf", now)
            pipeline.pexpire(self._watchers, _LEASE_MS)
            await pipeline.execute()

    async def leave(self, wanted: TailFilter) -> None:
        """Remove a watcher and its stream."""
        async with asyncio.timeout(self._deadline):
            await self._redis.zrem(self._watchers, _encode(wanted))
            await self._redis.delete(self._stream + wanted.name)

    async def watchers(self) -> list[TailFilter]:
        """The filters of all who watch."""
        async with asyncio.timeout(self._deadline):
            now = await shared_time(self._redis)
            found: Any = await self._redis.zrangebyscore(self._watchers, now, "+inf")
        watchers = []
        for each in found:
            with suppress(msgspec.DecodeError):  # another version of the engine wrote it
                watchers.append(_read_filter(each))
        return watchers

    async def write(self, decisions: Mapping[str, Sequence[LiveDecision]]) -> None:
        """Write decisions to the stream of each watcher, by its name."""
        pipeline: Any = self._redis.pipeline(transaction=False)
        for name, listed in decisions.items():
            key = self._stream + name
            for each in listed:
                pipeline.xadd(key, {b"d": _encode(each)}, maxlen=_MOST_KEPT, approximate=True)
            pipeline.pexpire(key, _LEASE_MS)
        async with asyncio.timeout(self._deadline):
            await pipeline.execute()

    async def read(self, name: str, after: str, most: int = _MOST_KEPT) -> LiveDecisions:
        """The decisions for a watcher after a position. Waits up to 250 ms for the first one."""
        async with asyncio.timeout(self._deadline + _BLOCK_MS / 1000):
            read = self._redis.xread({self._stream + name: after}, count=most, block=_BLOCK_MS)
            streams: Any = await read
        # XREAD answers with a mapping under RESP3 and with pairs under RESP2.
        by_stream = streams.items() if isinstance(streams, dict) else streams or ()
        found = []
        for _, messages in by_stream:
            for number, fields in messages:
                after = number.decode()
                with suppress(msgspec.DecodeError):  # another version of the engine wrote it
                    found.append(_read_decision(fields[b"d"]))
        return LiveDecisions(after, found)

    async def of_company(self, company_id: int, after: str | None, now: float) -> LiveDecisions:
        """The decisions of a company for the pages of its accounts, which share one watcher.

        `now` is in epoch seconds.
        """
        wanted = TailFilter(f"company-{company_id}", company_id)
        await self.watch(wanted)
        begin = after or f"{int((now - _BACK_SECONDS) * 1000)}-0"
        return await self.read(wanted.name, begin, most=_PAGE)
