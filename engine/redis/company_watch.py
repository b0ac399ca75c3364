"""Watches the decisions about one company for clients that poll, such as a page.

All clients of a company share one watcher and its stream, also across processes, so further clients
cost the triggers nothing. The watcher ends when no client polls any more.
"""

import time
from collections.abc import Callable

from api.records.live import LiveDecision, LiveDecisions, LiveOutcome
from engine.redis.tail_store import (
    MOST_COMPANIES,
    PAGE_PREFIX,
    TailedDecision,
    TailFilter,
    TailStore,
    WatchedTail,
)
from rules.model import Zone

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
