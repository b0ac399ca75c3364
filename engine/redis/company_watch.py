"""Watches the decisions about one company for whoever asks again and again, as a page does.

All who ask about a company share one watcher and its stream, in whatever process they ask: the
first asks a moment's work of triggers, the others nothing. It ends when nobody asks any more.
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

_MOST_AT_ONCE = 200
# Signs of life are in seconds of the clocks of several hosts.
_GONE_SECONDS = 30
# The first to ask sees what others have had passed on just before.
_BACK_SECONDS = 5


class CompanyWatch:
    """Reads what triggers pass on. `clock` in epoch seconds.

    Raises RedisError, OSError or TimeoutError.
    """

    def __init__(self, store: TailStore, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    async def decisions(self, company_id: int, after: str | None) -> LiveDecisions | None:
        """What came behind a place; None while too many companies are watched."""
        now = self._clock()
        name = f"{PAGE_PREFIX}{company_id}"
        wanted = TailFilter(int(now), company_id)
        if not await self._store.is_watching(name) and not await self._has_room(wanted, now):
            return None
        await self._store.watch(name, wanted)
        begin = after or f"{int((now - _BACK_SECONDS) * 1000)}-0"
        found, place = await self._store.read(WatchedTail(name, begin), most=_MOST_AT_ONCE)
        return LiveDecisions(place.after, [_live(each) for each in found])

    async def _has_room(self, wanted: TailFilter, now: float) -> bool:
        """Whether triggers would look at one more; those of companies that went are removed."""
        watchers = await self._store.watchers()
        gone = [each for each, found in watchers.items() if _is_gone(each, found, now)]
        for each in gone:
            await self._store.leave(each)
            del watchers[each]
        companies = {each.company for each in watchers.values()} - {None, wanted.company}
        return len(companies) < MOST_COMPANIES


def _is_gone(name: str, wanted: TailFilter, now: float) -> bool:
    return name.startswith(PAGE_PREFIX) and abs(now - wanted.beat) > _GONE_SECONDS


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
