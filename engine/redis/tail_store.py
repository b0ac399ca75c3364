"""Passes decisions through Redis from running triggers to people who watch them.

A watcher writes its filter into a hash once a second. Triggers read the hash once a second and
write to the stream of each watcher. Streams are used, not pub/sub: they work alike on a cluster,
and a stream that nobody reads is bounded and deleted after ten seconds.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from api.reports import LiveDecision, LiveDecisions, LiveOutcome
from catalog.redis_connection import RedisClient
from rules.model import Zone

MOST_WATCHERS = 8  # of all companies, or of one
MOST_COMPANIES = 250
PAGE_PREFIX = "company-"  # of the watcher that the pages of a company share
_MOST_KEPT = 2000  # in a stream
_LEASE_MS = 10_000
_BLOCK_MS = 250


class TailFilter(msgspec.Struct, frozen=True, array_like=True):
    """The filter of a watcher: every field that is set has to match. `beat` counts heartbeats."""

    beat: int
    company: int | None = None
    campaign: str | None = None
    udid: str | None = None
    reason: str | None = None


class CampaignOutcome(NamedTuple):
    """A campaign and the reason of its outcome."""

    number: int
    name: str
    outcome: str


class TailedDecision(msgspec.Struct, frozen=True, array_like=True):
    """A decision without the device. Times in epoch seconds.

    `left_out` counts further decisions since the last one that matched but were too many to send.
    `beacon` is the name of the place, and `kind` what it is: "position" if it is in no geofence.
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
    kind: str = "beacon"


class WatchedTail(NamedTuple):
    """A watcher, and the position up to which it has read its stream."""

    watcher: str
    after: str = "0-0"


_encode = msgspec.msgpack.Encoder().encode
_read_filter = msgspec.msgpack.Decoder(TailFilter).decode
_read_decision = msgspec.msgpack.Decoder(TailedDecision).decode


def served_watchers(watchers: Mapping[str, TailFilter]) -> list[str]:
    """The names of the watchers that triggers serve.

    These are at most MOST_WATCHERS that watch every company, and at most MOST_WATCHERS of each of
    MOST_COMPANIES companies; pages come first.
    """
    by_company: dict[int | None, list[str]] = {None: []}
    for name in sorted(watchers, key=lambda name: (not name.startswith(PAGE_PREFIX), name)):
        company = watchers[name].company
        if company in by_company or len(by_company) <= MOST_COMPANIES:
            by_company.setdefault(company, []).append(name)
    return [name for names in by_company.values() for name in names[:MOST_WATCHERS]]


class TailStore:
    """Both ends of the tail. `deadline` in seconds. Raises RedisError, OSError or TimeoutError."""

    def __init__(self, *, redis: RedisClient, prefix: str, deadline: float) -> None:
        self._redis = redis
        self._watchers = f"{prefix}watchers"
        self._stream = f"{prefix}watched:"
        self._deadline = deadline

    async def watch(self, watcher: str, tail_filter: TailFilter) -> int:
        """Register `watcher`, or renew its registration. Returns how many are registered.

        A watcher calls it once a second.
        """
        pipeline: Any = self._redis.pipeline(transaction=False)
        pipeline.hset(self._watchers, watcher, _encode(tail_filter))
        pipeline.pexpire(self._watchers, _LEASE_MS)
        pipeline.hlen(self._watchers)
        watching: int = (await self._run(pipeline))[-1]
        return watching

    async def is_watching(self, watcher: str) -> bool:
        """Whether the watcher is registered."""
        async with asyncio.timeout(self._deadline):
            return bool(await self._redis.hexists(self._watchers, watcher))

    async def leave(self, watcher: str) -> None:
        """Remove `watcher` and its stream."""
        pipeline: Any = self._redis.pipeline(transaction=False)
        pipeline.hdel(self._watchers, watcher)
        pipeline.delete(self._stream + watcher)
        await self._run(pipeline)

    async def forget(self, watchers: Sequence[str]) -> None:
        """Remove dead watchers. (One that was only frozen registers again.)"""
        async with asyncio.timeout(self._deadline):
            await self._redis.hdel(self._watchers, *watchers)

    async def watchers(self) -> dict[str, TailFilter]:
        """All registered watchers by name, in the order of names, dead ones included."""
        async with asyncio.timeout(self._deadline):
            found: Any = await self._redis.hgetall(self._watchers)
        tail_filter = {name.decode(): _filter(value) for name, value in sorted(found.items())}
        return {name: each for name, each in tail_filter.items() if each is not None}

    async def write(self, decisions: Mapping[str, Sequence[TailedDecision]]) -> None:
        """Write decisions to the stream of each watcher."""
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
        """The new decisions for a watcher, at most `most`, and its next position.

        Waits up to 250 ms for a decision.
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
                with suppress(msgspec.DecodeError):  # another version of the engine wrote it
                    found.append(_read_decision(fields[b"d"]))
        return found, place

    async def _run(self, pipeline: Any) -> list[Any]:
        async with asyncio.timeout(self._deadline):
            answers: list[Any] = await pipeline.execute()
        return answers


def _filter(written: bytes) -> TailFilter | None:
    """The filter, or None if another version of the engine wrote it."""
    try:
        return _read_filter(written)
    except msgspec.DecodeError:
        return None


_MOST_DECISIONS = 200
# Heartbeats are epoch seconds of several hosts, whose clocks may differ.
_DEAD_SECONDS = 30
# A first request also gets the latest decisions that were passed on for other clients.
_BACK_SECONDS = 5


class CompanyWatch:
    """Reads the decisions that triggers pass on. `clock` in epoch seconds.

    Raises RedisError, OSError or TimeoutError.
    """

    def __init__(self, store: TailStore, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    async def decisions(self, company_id: int, after: str | None) -> LiveDecisions | None:
        """The decisions after a position; None while too many companies are watched."""
        now = self._clock()
        name = f"{PAGE_PREFIX}{company_id}"
        tail_filter = TailFilter(int(now), company_id)
        if not await self._store.is_watching(name) and not await self._has_room(tail_filter, now):
            return None
        await self._store.watch(name, tail_filter)
        begin = after or f"{int((now - _BACK_SECONDS) * 1000)}-0"
        found, place = await self._store.read(WatchedTail(name, begin), most=_MOST_DECISIONS)
        return LiveDecisions(place.after, [_live(each) for each in found])

    async def _has_room(self, tail_filter: TailFilter, now: float) -> bool:
        """Whether triggers would serve one more company. Removes watchers without a heartbeat."""
        watchers = await self._store.watchers()
        dead = [name for name, each in watchers.items() if _has_no_heartbeat(name, each, now)]
        for name in dead:
            await self._store.leave(name)
            del watchers[name]
        companies = {each.company for each in watchers.values()} - {None, tail_filter.company}
        return len(companies) < MOST_COMPANIES


def _has_no_heartbeat(name: str, tail_filter: TailFilter, now: float) -> bool:
    return name.startswith(PAGE_PREFIX) and abs(now - tail_filter.beat) > _DEAD_SECONDS


def _live(tailed: TailedDecision) -> LiveDecision:
    return LiveDecision(
        tailed.detected_at,
        tailed.decided_at,
        tailed.venue,
        tailed.beacon,
        Zone(tailed.zone),
        tailed.reason,
        tuple(LiveOutcome(*each) for each in tailed.campaigns),
        tailed.left_out,
    )
