"""Decisions in Redis, for people: the last ones about each device, and those that somebody watches.

A device has one short list, for a day. A watcher renews its filter once a second, in a sorted set
by the time at which it ends. Triggers read the set once a second and write to the stream of each
watcher. Streams are used, not pub/sub: they work alike on a cluster, and a stream that nobody reads
is bounded and deleted after ten seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from api.reports import LiveDecision, LiveDecisions
from catalog.bounds import chunked
from engine.redis.claims import claim_tag
from engine.redis.devices import DeviceKey
from engine.redis.store import RedisStore, readable, shared_time
from rules.model import StoredDecision

KEPT_SECONDS = 24 * 3600
_AT_ONCE = 100  # so that no other task waits for long
_encode = msgspec.msgpack.Encoder().encode
_read_stored = msgspec.msgpack.Decoder(StoredDecision).decode


class DeviceDecision(NamedTuple):
    device: DeviceKey
    decision: StoredDecision


@dataclass(kw_only=True, eq=False)
class DecisionStore(RedisStore):
    """Stores and reads the last `most` decisions about each device."""

    most: int

    async def keep(self, decisions: Sequence[DeviceDecision]) -> None:
        """Store decisions in their order; only the newest about each device are kept."""
        for part in chunked(decisions, _AT_ONCE):
            pipeline = self._pipeline()
            for device, decision in part:
                key = decisions_key(self.prefix, device)
                pipeline.lpush(key, _encode(decision))
                pipeline.ltrim(key, 0, self.most - 1)
                pipeline.expire(key, KEPT_SECONDS)
            await self._answer(pipeline.execute())

    async def read(self, device: DeviceKey) -> list[StoredDecision]:
        """The decisions about one device, the newest first."""
        key = decisions_key(self.prefix, device)
        return readable(await self._answer(self.redis.lrange(key, 0, -1)), _read_stored)


def decisions_key(prefix: str, device: DeviceKey) -> str:
    """The key of the decisions about one device."""
    return f"{prefix}decisions:{{{claim_tag(device.udid)}}}:{device.company_id}:{device.udid}"


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


class TailStore(RedisStore):
    """Both ends of the tail."""

    async def watch(self, wanted: TailFilter) -> None:
        """Register for five seconds, or renew that."""
        now, key = await self._answer(shared_time(self.redis)), f"{self.prefix}watching"
        pipeline = self._pipeline()
        pipeline.zadd(key, {_encode(wanted): now + _WATCH_SECONDS})
        pipeline.zremrangebyscore(key, "-inf", now)
        pipeline.pexpire(key, _LEASE_MS)
        await self._answer(pipeline.execute())

    async def leave(self, wanted: TailFilter) -> None:
        """Remove a watcher and its stream."""
        await self._answer(self.redis.zrem(f"{self.prefix}watching", _encode(wanted)))
        await self._answer(self.redis.delete(self._stream(wanted.name)))

    async def watchers(self) -> list[TailFilter]:
        now = await self._answer(shared_time(self.redis))
        query = self.redis.zrangebyscore(f"{self.prefix}watching", now, "+inf")
        return readable(await self._answer(query), _read_filter)

    async def write(self, decisions: Mapping[str, Sequence[LiveDecision]]) -> None:
        """Write decisions to the stream of each watcher, by its name."""
        pipeline = self._pipeline()
        for name, listed in decisions.items():
            key = self._stream(name)
            for each in listed:
                pipeline.xadd(key, {b"d": _encode(each)}, maxlen=_MOST_KEPT, approximate=True)
            pipeline.pexpire(key, _LEASE_MS)
        await self._answer(pipeline.execute())

    async def read(self, name: str, after: str, most: int = _MOST_KEPT) -> LiveDecisions:
        """The decisions for a watcher after a position. Waits up to 250 ms for the first one."""
        messages = await self._read_stream(self._stream(name), after, most, _BLOCK_MS)
        position = messages[-1][0].decode() if messages else after
        found = readable((fields[b"d"] for _, fields in messages), _read_decision)
        return LiveDecisions(position, found)

    async def of_company(self, company_id: int, after: str | None, now: float) -> LiveDecisions:
        """The decisions of a company for the pages of its accounts, which share one watcher.

        `now` is in epoch seconds.
        """
        wanted = TailFilter(f"company-{company_id}", company_id)
        await self.watch(wanted)
        begin = after or f"{int((now - _BACK_SECONDS) * 1000)}-0"
        return await self.read(wanted.name, begin, most=_PAGE)

    def _stream(self, name: str) -> str:
        return f"{self.prefix}watched:{name}"
