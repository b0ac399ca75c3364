"""The connector's calls with DELIVERY=exactly_once: a call's result and its being done, or neither.

Calls finish in any order and an offset has no gaps. So the transaction that publishes results
commits the offset without a gap, and beside it which calls behind it are finished. What does not
fit beside it waits: an earlier call will finish and make room.

The claim is settled before, because it is in Redis: after a crash in between, the call is repeated,
and settles nothing that it does not own.
"""

import asyncio
from collections.abc import Callable, Sequence

from engine.connector.call_partition import CallPartition
from engine.connector.result_publisher import Departure, ResultPublisher, settlement_of
from engine.kafka.finished_ranges import MOST_CHARACTERS, FinishedRanges
from engine.kafka.partition_worker import Records
from engine.kafka.positions import Place
from engine.kafka.transactions import TransactionalPublisher
from engine.process.cancelling import cancel
from engine.redis.claim_settlement import Settlement

_MOST_DEPARTURES = 1000
_IDLE_SECONDS = 1.0


class TransactionalResultPublisher(ResultPublisher):
    """Sees off the calls of one assignment of one partition: settle, then publish and commit."""

    def begin(
        self,
        origin: CallPartition,
        transactions: TransactionalPublisher,
        topic_id: str | None,
        finished_before: FinishedRanges,
    ) -> None:
        """Whose calls these are. To be called once, before `run`."""
        self._origin = origin
        self._transactions = transactions
        self._topic_id = topic_id
        self._finished_before = finished_before
        self._held: list[Departure] = []
        self._committed: int | None = None
        self._alone = asyncio.Lock()

    def add(self, departure: Departure) -> None:
        """See it off soon; its origin is told when it is done."""
        self._take_room(departure.size)
        wish = settlement_of(departure)
        if wish is None:
            self._leaving.put([departure])
        else:
            self._unsettled.put([(departure, wish)])

    async def run(self) -> None:
        """Until cancelled. Raises TransactionLostError."""
        steps = [
            asyncio.create_task(self._unsettled.empty(self._settle)),
            asyncio.create_task(self._leaving.empty(self._leave)),
            asyncio.create_task(self._commit_when_idle()),
        ]
        try:
            done, _ = await asyncio.wait(steps, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await cancel(steps)
            self._give_room(self._waiting_bytes)

    async def _settle(self, batch: list[tuple[Departure, Settlement]]) -> None:
        await self._settle_claims([wish for _, wish in batch])
        self._leaving.put(departure for departure, _ in batch)

    async def _leave(self, batch: list[Departure]) -> None:
        waiting = sorted(self._held + batch, key=lambda departure: departure.offset)
        while waiting:
            count = self._fitting([departure.offset for departure in waiting[:_MOST_DEPARTURES]])
            if not count:
                break
            async with self._alone:
                await self._depart(waiting[:count])
            del waiting[:count]
        self._held = waiting

    async def _depart(self, batch: list[Departure]) -> None:
        """Publish, and commit that it is done, in one transaction."""
        with self._step("publish"):
            departed = await self._publish(batch)
            # What its topic does not take has become a failure, whose claim is given back.
            failed = [new for new, old in zip(departed, batch, strict=True) if new is not old]
            wishes = [wish for each in failed if (wish := settlement_of(each)) is not None]
            if wishes:
                await self._settle_claims(wishes)
            await self._commit([departure.offset for departure in batch])
        self._give_room(sum(departure.size for departure in batch))
        self._count(departed)
        self._origin.finished([departure.offset for departure in batch])

    async def _commit(self, offsets: Sequence[int]) -> None:
        begun = self._origin.offsets
        done, _ = begun.after(frozenset(offsets))
        if done is None:
            done = begun.first
        assert done is not None  # noqa: S101  # something was begun
        await self._transactions.commit(Place(done, self._topic_id, self._text(offsets)))
        self._committed = done

    def _text(self, offsets: Sequence[int]) -> str:
        """What will be finished behind the offset: of what was read, and what is read again yet."""
        begun = self._origin.offsets
        _, finished = begun.after(frozenset(offsets))
        return FinishedRanges([*finished, *self._finished_before.beyond(begun.end or 0)]).text()

    def _fitting(self, offsets: list[int]) -> int:
        """How many of the offsets, from the first on, can be committed as finished together."""
        fits, too_many = 0, len(offsets) + 1
        count = len(offsets)
        while fits + 1 < too_many:
            if len(self._text(offsets[:count])) <= MOST_CHARACTERS:
                fits = count
            else:
                too_many = count
            count = (fits + too_many) // 2
        return fits

    async def _commit_when_idle(self) -> None:
        """Calls that were finished before this assignment are done without a departure."""
        while True:
            await asyncio.sleep(_IDLE_SECONDS)
            async with self._alone:
                if self._origin.done_offset not in (None, self._committed):
                    await self._commit([])


class TransactionalCallPartition:
    """Implements Worker: a CallPartition whose calls leave in transactions.

    Its offsets are committed with them, and never left to the consumer's commits.
    """

    done_offset = None

    def __init__(
        self,
        calls: CallPartition,
        *,
        departures: TransactionalResultPublisher,
        publisher: TransactionalPublisher,
        topic_id: str | None,
        finished_before: FinishedRanges,
        on_progress: Callable[[], None],
    ) -> None:
        self.partition = calls.partition
        self._calls = calls
        self._publisher = publisher
        departures.begin(calls, publisher, topic_id, finished_before)
        self._departing = asyncio.create_task(departures.run(), name=f"leaving {self.partition}")
        self._departing.add_done_callback(lambda _: on_progress())

    @property
    def pending(self) -> int:
        """Records offered and not finished."""
        return self._calls.pending

    @property
    def failure(self) -> BaseException | None:
        """What stopped the calls or their departures, once something has."""
        if self._departing.done() and not self._departing.cancelled():
            return self._departing.exception()
        return self._calls.failure

    def offer(self, records: Records) -> None:
        """Queue fetched records."""
        self._calls.offer(records)

    async def finish(self, deadline: float) -> None:
        """Let what is in flight finish and leave, within `deadline` seconds; drop what waits."""
        finishing = asyncio.create_task(self._calls.finish(deadline))
        await asyncio.wait([finishing, self._departing], return_when=asyncio.FIRST_COMPLETED)
        await cancel([finishing])
        await self.abandon()

    async def abandon(self) -> None:
        """End at once, whatever is in hand."""
        await self._calls.abandon()
        await cancel([self._departing])
        await self._publisher.close()
