"""Limits costly work: checks of passwords, and tests of connectors."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from api.errors import ApiError, unavailable

_Waiting = asyncio.Future[None]


class FairSlots:
    """`at_once` slots; a request without a free slot waits up to `seconds` in its network's queue.

    Each network may have `waiting_each` requests in its queue, all networks together `waiting`. A
    network that asks for very many slots delays only itself and gets no more than its share.
    """

    def __init__(
        self, *, at_once: int, waiting: int = 256, waiting_each: int = 8, seconds: float = 10.0
    ) -> None:
        self._free = at_once
        self._most = waiting
        self._most_each = waiting_each
        self._seconds = seconds
        self._queues: OrderedDict[str, deque[_Waiting]] = OrderedDict()

    @asynccontextmanager
    async def slot(self, network: str) -> AsyncIterator[None]:
        """Wait for a slot and hold it.

        Raises ApiError: 429 if the network has too many waiting, 503 if all networks have, or if
        the wait takes too long.
        """
        if self._free and not self._queues:
            self._free -= 1
        else:
            await self._wait(network)
        try:
            yield
        finally:
            self._release()

    async def _wait(self, network: str) -> None:
        self._make_room(network)
        mine: _Waiting = asyncio.get_running_loop().create_future()
        self._queues.setdefault(network, deque()).append(mine)
        try:
            async with asyncio.timeout(self._seconds):
                await mine
        except BaseException as error:
            if mine.done() and not mine.cancelled() and mine.exception() is None:
                self._release()  # the slot was given at the moment when the wait ended
            else:
                self._leave(network, mine)
            if isinstance(error, TimeoutError):
                raise unavailable("too many sign in at once; try again") from None
            raise

    def _make_room(self, network: str) -> None:
        own = len(self._queues.get(network, ()))
        if own >= self._most_each:
            raise ApiError(
                429,
                "too many sign in from this network at once; try again",
                headers={"retry-after": "1"},
            )
        if sum(map(len, self._queues.values())) < self._most:
            return
        longest = max(self._queues, key=lambda name: len(self._queues[name]))
        if len(self._queues[longest]) <= own + 1:
            raise unavailable("too many sign in at once; try again")
        last = self._queues[longest].pop()
        last.set_exception(unavailable("too many sign in at once; try again"))

    def _release(self) -> None:
        """Give the slot to the next network's first request; the network moves to the end."""
        while self._queues:
            network, queue = self._queues.popitem(last=False)
            first = queue.popleft()
            if queue:
                self._queues[network] = queue
            if not first.done():
                first.set_result(None)
                return
        self._free += 1

    def _leave(self, network: str, mine: _Waiting) -> None:
        queue = self._queues.get(network)
        if queue is not None and mine in queue:
            queue.remove(mine)
            if not queue:
                del self._queues[network]


class TrialSlots:
    """Slots for tests of connectors: one for a company at a time, and `most` in all.

    A request without a free slot is refused at once, because a test takes no longer than one call.
    """

    def __init__(self, most: int = 8) -> None:
        self._most = most
        self._companies: set[int] = set()

    @contextmanager
    def slot(self, company_id: int) -> Iterator[None]:
        """Hold a slot. Raises ApiError: 429 for a second test of a company, 503 over `most`."""
        if company_id in self._companies:
            raise ApiError(
                429,
                "the company's connector is being tested already",
                headers={"retry-after": "1"},
            )
        if len(self._companies) >= self._most:
            raise unavailable("too many connectors are being tested; try again")
        self._companies.add(company_id)
        try:
            yield
        finally:
            self._companies.discard(company_id)
