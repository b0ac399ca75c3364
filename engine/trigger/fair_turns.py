"""Companies in turn: a bounded number of turns at once, and none that takes them all."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_LONG = 0.5  # seconds
_MOST_ASIDE = 16


class Turns:
    """At most `most` turns at once in the process, in rotation between the companies that wait.

    One turn is never given to a company that has the others: whoever has little to do finds it
    free, however much somebody else has. A turn that takes `long` seconds waits for a server (the
    leader of one partition, say), and is set aside, so that those who need another one go on; at
    most 16 are.
    """

    def __init__(self, most: int, *, long: float = _LONG) -> None:
        self._most = max(2, most)
        self._long = long
        self._aside = 0
        self._running: Counter[int] = Counter()
        self._waiting: OrderedDict[int, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, company: int) -> AsyncIterator[None]:
        """Wait for a turn of `company`, and have it."""
        await self._begin(company)
        turn = _Turn(company)
        timer = asyncio.get_running_loop().call_later(self._long, self._set_aside, turn)
        try:
            yield
        finally:
            timer.cancel()
            if turn.is_aside:
                self._aside -= 1
            else:
                self._end(company)

    def _set_aside(self, turn: "_Turn") -> None:
        if self._aside < _MOST_ASIDE:
            turn.is_aside = True
            self._aside += 1
            self._end(turn.company)

    async def _begin(self, company: int) -> None:
        if company not in self._waiting and self._may_begin(company):
            self._running[company] += 1
            return
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(company, deque()).append(begun)
        try:
            await begun
        except asyncio.CancelledError:
            if begun.done() and not begun.cancelled():
                self._end(company)  # the turn had just been given
            raise

    def _may_begin(self, company: int) -> bool:
        alone = self._running[company] < self._most - 1
        return alone and self._running.total() < self._most

    def _end(self, company: int) -> None:
        self._running[company] -= 1
        if not self._running[company]:
            del self._running[company]
        self._give()

    def _give(self) -> None:
        """Give what is free to the first companies of the rotation that may have it."""
        for company in list(self._waiting):
            if self._running.total() >= self._most:
                return
            if self._running[company] < self._most - 1:
                self._give_to(company)

    def _give_to(self, company: int) -> None:
        queue = self._waiting.pop(company)
        while queue:
            begun = queue.popleft()
            if not begun.done():
                self._running[company] += 1
                begun.set_result(None)
                break
        if queue:
            self._waiting[company] = queue  # behind the others


class _Turn:
    """One turn under way."""

    __slots__ = ("company", "is_aside")

    def __init__(self, company: int) -> None:
        self.company = company
        self.is_aside = False
