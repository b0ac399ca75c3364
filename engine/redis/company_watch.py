"""Watches the decisions about one company for clients that poll, such as a page.

All clients of a company share one watcher and its stream, also across processes, so only the first
client costs the triggers anything. The watcher ends when no client polls any more.
"""

import time
from collections.abc import Callable, Collection, Mapping

from api.records.live import LiveDecision, LiveDecisions, LiveOutcome
from engine.redis.tail_store import (
    MOST_WATCHERS,
    TailedDecision,
    TailFilter,
    TailStore,
    WatchedTail,
)
from rules.model import Zone

_MOST_AT_ONCE = 200
_NAME = "company-"
# Heartbeats are epoch seconds of several hosts, whose clocks may differ.
_GONE_SECONDS = 30
# A first request also gets the decisions that were passed on for other clients just before.
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
        name = f"{_NAME}{company_id}"
        if not await self._has_room(name, await self._store.watchers(), now):
            return None
        await self._store.watch(name, TailFilter(int(now), company_id))
        begin = after or f"{int((now - _BACK_SECONDS) * 1000)}-0"
        found, place = await self._store.read(WatchedTail(name, begin), most=_MOST_AT_ONCE)
        return LiveDecisions(place.after, [_live(each) for each in found])

    async def _has_room(self, name: str, watchers: Mapping[str, TailFilter], now: float) -> bool:
        """Whether triggers would serve one more watcher. Removes watchers without a heartbeat."""
        dead = [each for each, wanted in watchers.items() if _has_no_heartbeat(each, wanted, now)]
        for each in dead:
            await self._store.leave(each)
        return name in watchers or _is_below_limit(watchers, dead)


def _is_below_limit(watchers: Collection[str], dead: Collection[str]) -> bool:
    return len(watchers) - len(dead) < MOST_WATCHERS


def _has_no_heartbeat(name: str, wanted: TailFilter, now: float) -> bool:
    return name.startswith(_NAME) and abs(now - wanted.beat) > _GONE_SECONDS


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
