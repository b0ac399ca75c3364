"""The limit on dead letters: a bad deployment must not pour a topic into them.

One sender can invent records, and keys, without end; what it cannot do is make the others fail.
So the limit looks at keys, not at records, and at those that were understood before. Decision 0030
says why.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from aiokafka import ConsumerRecord, TopicPartition

from engine.kafka.errors import TooManyDeadLettersError
from engine.kafka.partition_worker import Records

PATIENCE = 10.0  # seconds without one good record
_KNOWN = 1000  # keys understood before that are remembered
_NOTED_OF_A_BATCH = 16  # a sample: the good records are the many
_MOST_RUN = 100_000
_BYTES_OF_A_VALUE = 256


class DeadLetterLimit:
    """Stops a role where `run` different keys fail and nobody is understood, or where of the
    last 1000 keys that were understood more than `share` fail now.

    One for all partitions of a topic. A record that comes again counts once. `clock` in seconds.
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

    def note(self, records: Records, dead_positions: Sequence[int]) -> None:
        """Count a batch of one partition, of which those at `dead_positions` (ascending) failed.

        Raises TooManyDeadLettersError; call it before anything of the batch is published.
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
        """Whether the batch was not counted before: it is read again while SQL is away."""
        place = TopicPartition(last.topic, last.partition)
        if last.offset < self._next.get(place, 0):
            return False
        self._next[place] = last.offset + 1
        return True

    def _note_good(self, records: Records, dead: set[int]) -> None:
        """Remember a few of the good keys; where some fail, look at all that are remembered, and
        do not replace those by others that happen to be good."""
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
                f"{seconds:.0f} s (limit {self._run}): nothing of this batch was published; mend "
                "the producer, or raise PROXIMITY_DEAD_LETTER_RUN to let them through"
            )
        known = len(self._known)
        if self._is_full and self._fallen > self._share * known:
            raise TooManyDeadLettersError(
                f"of {known} keys whose records were good, {self._fallen} fail now "
                f"(limit {self._share:.0%}): nothing of this batch was published; mend the "
                "producer, or raise PROXIMITY_DEAD_LETTER_SHARE to let them through"
            )


def _name(record: ConsumerRecord[bytes, bytes]) -> int:
    """A sender: its key, or without one how its record begins."""
    if record.key is not None:
        return hash(record.key)
    return hash((record.value or b"")[:_BYTES_OF_A_VALUE])
