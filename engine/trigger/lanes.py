"""Lanes: the queues of one partition, one for each company, which take turns and keep order.

Detections of different companies are independent: a claim is for one campaign, and a campaign
belongs to one company. So each company has its own lane on each partition, and companies take
turns (company_turns.py). Dead letters have a lane, too.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from aiokafka import ConsumerRecord

from engine.kafka.dead_letters import DeadLetter
from engine.process.metrics import Metrics
from engine.trigger.claim_memory import RememberedClaims
from engine.trigger.counts import DecisionCounts
from engine.trigger.fair_turns import FairTurns
from engine.trigger.grants import Candidate, Grant

DEAD_LETTERS = 0  # the number of their lane; companies' ids begin at 1
_LETTERS = 256  # the most of one turn

Record: TypeAlias = ConsumerRecord[bytes, bytes]
OnFinished = Callable[[list[Record]], None]


class Lane:
    """A queue that runs while anything waits in it. `on_finished` receives the finished records.

    The records of a lane finish in order. `take_turn` waits for a turn and handles the next items
    completely.
    """

    def __init__(
        self,
        number: int,
        *,
        on_finished: OnFinished,
        take_turn: Callable[[], Awaitable[None]],
    ) -> None:
        self.number = number
        self._take_turn = take_turn
        self._on_finished = on_finished
        self._unfinished: deque[Record] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether everything that was put in is finished."""
        return not self._unfinished

    async def run(self) -> None:
        """Run until nothing waits. Raises permanent errors."""
        while self._unfinished:
            await self._take_turn()

    def _finish_before(self, next_record: Record | None) -> None:
        """Finish all records before the next one; all records if none is next."""
        finished = []
        while self._unfinished and (
            next_record is None or self._unfinished[0].offset < next_record.offset
        ):
            finished.append(self._unfinished.popleft())
        if finished:
            self._on_finished(finished)


class CompanyLane(Lane):
    """The lane of one company: candidates that wait for a decision, grants for their message.

    A turn takes from both, and then calls `finish`. It may be the turn of other lanes as well, and
    go on after this lane was abandoned.
    """

    def __init__(
        self,
        number: int,
        *,
        on_finished: OnFinished,
        remembered: RememberedClaims,
        take_turn: Callable[["CompanyLane"], Awaitable[None]],
    ) -> None:
        super().__init__(number, on_finished=on_finished, take_turn=lambda: take_turn(self))
        self.remembered = remembered
        self.candidates: deque[Candidate] = deque()
        self.grants: deque[Grant] = deque()
        self.is_abandoned = False
        self._counts: DecisionCounts | None = None

    @property
    def waiting(self) -> int:
        """How many candidates or grants the next turn finds."""
        return len(self.grants) or len(self.candidates)

    def abandon(self) -> None:
        """Drop everything: the partition has another owner now."""
        self.is_abandoned = True
        self.candidates.clear()
        self.grants.clear()

    def put(self, candidate: Candidate) -> None:
        """Queue a detection that may fire campaigns of the company."""
        self._unfinished.append(candidate.detection.record)
        self.candidates.append(candidate)

    def put_grants(self, grants: list[Grant], counts: DecisionCounts) -> None:
        """Queue the grants of candidates. `counts` are added to the metrics once they are sent."""
        if self.is_abandoned:
            return
        self.grants.extend(grants)
        self._counts = counts

    def drop_grants(self, count: int) -> None:
        """Their messages are composed."""
        if count >= len(self.grants):
            self.grants.clear()
        for _ in range(min(count, len(self.grants))):
            self.grants.popleft()

    def finish(self, metrics: Metrics) -> None:
        """Finish all records before the next one that waits; none, if the lane was abandoned."""
        if self.is_abandoned:
            return
        waiting: deque[Grant] | deque[Candidate] = self.grants or self.candidates
        if self._counts is not None and not self.grants:
            self._counts.add_to(metrics)
            self._counts = None
        self._finish_before(waiting[0].detection.record if waiting else None)


class DeadLetterLane(Lane):
    """The dead letters of all companies. `publish` returns when they are acknowledged."""

    def __init__(
        self,
        *,
        turns: FairTurns,
        turn_bytes: int,
        on_finished: OnFinished,
        publish: Callable[[list[DeadLetter]], Awaitable[None]],
    ) -> None:
        super().__init__(DEAD_LETTERS, on_finished=on_finished, take_turn=self._take_next)
        self._turns = turns
        self._turn_bytes = turn_bytes
        self._publish = publish
        self._letters: deque[DeadLetter] = deque()

    def put(self, letter: DeadLetter) -> None:
        """Queue a record that could not be decoded."""
        self._unfinished.append(letter.record)
        self._letters.append(letter)

    async def _take_next(self) -> None:
        async with self._turns.turn(self.number):
            await self._publish_next()

    async def _publish_next(self) -> None:
        """Publish dead letters up to the bytes of a turn, at least one."""
        letters, size = list[DeadLetter](), 0
        while self._letters and size < self._turn_bytes and len(letters) < _LETTERS:
            letters.append(self._letters.popleft())
            record = letters[-1].record
            size += len(record.value or b"") + len(record.key or b"")
        await self._publish(letters)
        self._finish_before(self._letters[0].record if self._letters else None)
