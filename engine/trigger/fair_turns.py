"""Gives companies turns: a bounded number at once, and never all of them to one company."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

_STALLED_SECONDS = 0.5
_MOST_STALLED = 16


class FairTurns:
    """At most `most` turns at once in the process, in rotation between the waiting companies.

    The last free turn is never given to a company that has the others: a company with little to do
    finds one free, however much work the others have. A turn that takes `stalled_after` seconds
    waits for a server (the leader of one partition, say). It then counts no longer, so that
    companies that need other servers go on; this holds for at most 16 turns.
    """

    def __init__(self, most: int, *, stalled_after: float = _STALLED_SECONDS) -> None:
        self._most = max(2, most)
        self._stalled_after = stalled_after
        self._stalled = 0
        self._running: Counter[int] = Counter()
        self._waiting: OrderedDict[int, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, company: int) -> AsyncIterator[None]:
        """Wait for a turn of `company`, and hold it."""
        await self._begin(company)
        turn = _RunningTurn(company)
        timer = asyncio.get_running_loop().call_later(self._stalled_after, self._note_stalled, turn)
        try:
            yield
        finally:
            timer.cancel()
            if turn.is_stalled:
                self._stalled -= 1
            else:
                self._end(company)

    def _note_stalled(self, turn: "_RunningTurn") -> None:
        if self._stalled < _MOST_STALLED:
            turn.is_stalled = True
            self._stalled += 1
            self._end(turn.company)

    async def _begin(self, company: int) -> None:
        if company not in self._waiting and self._may_begin(company):
            self._running[company] += 1
            return
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(company, deque()).append(given)
        try:
            await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled():
                self._end(company)  # the turn was given in the moment of the cancellation
            raise

    def _may_begin(self, company: int) -> bool:
        leaves_one = self._running[company] < self._most - 1
        return leaves_one and self._running.total() < self._most

    def _end(self, company: int) -> None:
        self._running[company] -= 1
        if not self._running[company]:
            del self._running[company]
        self._give()

    def _give(self) -> None:
        """Give free turns to the first companies of the rotation that may have one."""
        for company in list(self._waiting):
            if self._running.total() >= self._most:
                return
            if self._may_begin(company):
                self._give_to(company)

    def _give_to(self, company: int) -> None:
        queue = self._waiting.pop(company)
        while queue:
            given = queue.popleft()
            if not given.done():
                self._running[company] += 1
                given.set_result(None)
                break
        if queue:
            self._waiting[company] = queue  # behind the others


@dataclass(slots=True)
class _RunningTurn:
    company: int
    is_stalled: bool = False
