"""The limit on dead letters: a bad deployment must not fill the topic with them.

One sender can invent any number of records and keys, but it cannot make other senders' records
fail. So the limit counts keys, not records, and considers keys whose records were good before.
Decision 0030 gives the reasons.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Self

from aiokafka import ConsumerRecord, TopicPartition

from engine.kafka.errors import TooManyDeadLettersError
from engine.kafka.partition_worker import Records
from engine.process.settings import Settings

PATIENCE = 10.0  # seconds without one good record
_KNOWN = 1000  # remembered keys whose records were good
_NOTED_OF_A_BATCH = 16  # a sample, because nearly all records are good
_MOST_RUN = 100_000
_BYTES_OF_A_VALUE = 256


class DeadLetterLimit:
    """Stops a role when too many different senders fail.

    That is when `run` different keys fail and no record is good, or when more than the part `share`
    of the last 1000 good keys fail now. All partitions of a topic share a limit. A record that is
    delivered again counts once. `clock` in seconds.
    """

    def __init__(
        self, *, share: float, run: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._share = share
        self._run = run
        self._clock = clock
        self._since = 0.0
        self._failing: set[int] = set()  # since the last good record
        self._known: OrderedDict[int, bool] = OrderedDict()  # key understood once: fails now
        self._fallen = 0  # how many of the known fail now
        self._next: dict[TopicPartition, int] = {}

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """The limit for all partitions of one topic.

        A limit for each partition would be reached by a single bad sender in a quiet partition.
        """
        return cls(share=settings.dead_letter_share, run=settings.dead_letter_run)

    def note(self, records: Records, dead_positions: Sequence[int]) -> None:
        """Count a batch of one partition; the records at `dead_positions` (ascending) failed.

        Raises TooManyDeadLettersError. Call it before anything of the batch is published.
        """
        if not records or not self._is_new(records[-1]):
            return
        dead = set(dead_positions)
        good = len(records) - len(dead)
        if good:
            self._failing.clear()
            self._note_good(records, dead)
        for position in dead_positions:
            self._note_dead(records[position], alone=not good)
        if dead_positions:
            self._judge()

    def _is_new(self, last: ConsumerRecord[bytes, bytes]) -> bool:
        """Whether the batch was not counted yet; while SQL is down a batch is read repeatedly."""
        place = TopicPartition(last.topic, last.partition)
        if last.offset < self._next.get(place, 0):
            return False
        self._next[place] = last.offset + 1
        return True

    def _note_good(self, records: Records, dead: set[int]) -> None:
        """Remember a few of the good keys.

        If some records failed, look for all remembered keys, and do not replace those by other good
        ones.
        """
        step = 1 if dead else max(1, len(records) // _NOTED_OF_A_BATCH)
        for position in range(0, len(records), step):
            name = _name(records[position])
            if position in dead or (dead and name not in self._known and self._is_full):
                continue
            self._fallen -= self._known.pop(name, False)
            self._known[name] = False
        while len(self._known) > _KNOWN:
            _, failed = self._known.popitem(last=False)
            self._fallen -= failed

    @property
    def _is_full(self) -> bool:
        return len(self._known) >= _KNOWN

    def _note_dead(self, record: ConsumerRecord[bytes, bytes], alone: bool) -> None:
        name = _name(record)
        if self._known.get(name) is False:
            self._known[name] = True
            self._fallen += 1
        if not alone:
            return
        if not self._failing:
            self._since = self._clock()
        if len(self._failing) < _MOST_RUN:
            self._failing.add(name)

    def _judge(self) -> None:
        failing, seconds = len(self._failing), self._clock() - self._since
        if self._run <= failing and seconds >= PATIENCE:
            raise TooManyDeadLettersError(
                f"the records of {failing} different keys failed, and none was good for "
                f"{seconds:.0f} s (limit {self._run}): nothing of this batch was published; repair "
                "the producer, or raise PROXIMITY_DEAD_LETTER_RUN to let them through"
            )
        known = len(self._known)
        if self._is_full and self._fallen > self._share * known:
            raise TooManyDeadLettersError(
                f"of {known} keys whose records were good, {self._fallen} fail now "
                f"(limit {self._share:.0%}): nothing of this batch was published; repair the "
                "producer, or raise PROXIMITY_DEAD_LETTER_SHARE to let them through"
            )


def _name(record: ConsumerRecord[bytes, bytes]) -> int:
    """The sender of a record: its key, or without a key the beginning of its value."""
    if record.key is not None:
        return hash(record.key)
    return hash((record.value or b"")[:_BYTES_OF_A_VALUE])
