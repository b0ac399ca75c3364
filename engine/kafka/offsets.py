"""Offsets of partitions: which are finished, which is committed, and of which topic."""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from engine.kafka.client import KafkaCluster
from engine.process.failures import ServerErrors, retry

# The brokers' offset.metadata.max.bytes is 4096, and the topic's id is part of the metadata.
MOST_CHARACTERS = 3900
_SPARE = 1000  # finished offsets behind an unfinished one that are kept at least


class OffsetTracker:
    """Tracks the unfinished offsets of a partition from `begin` on, in order.

    The offset to commit is that of the first unfinished record. Memory grows with the number of
    unfinished records only.
    """

    def __init__(self, begin: int) -> None:
        self.end = begin  # the offset after the last record that was read
        self._open: set[int] = set()
        # In order. (The first key of a dict is found by passing all that were deleted before it.)
        self._begun: deque[int] = deque()

    def begin_all(self, offsets: Sequence[int], end: int) -> None:
        """Add those of the offsets up to `end` that are unfinished, in order."""
        if offsets and offsets[0] < self.end:
            raise ValueError(f"offset {offsets[0]} comes after {self.end - 1}")
        self._open.update(offsets)
        self._begun.extend(offsets)
        self.end = end

    def finish_all(self, offsets: Iterable[int]) -> None:
        """Note offsets as finished, in any order. Raises KeyError for one that is not open."""
        for offset in offsets:
            self._open.remove(offset)
        while self._begun and self._begun[0] not in self._open:
            self._begun.popleft()
        if len(self._begun) > 2 * len(self._open) + _SPARE:
            self._begun = deque(each for each in self._begun if each in self._open)

    @property
    def unfinished(self) -> int:
        """How many offsets are unfinished."""
        return len(self._open)

    @property
    def done(self) -> int:
        """The offset to commit, before which everything is finished."""
        return self._begun[0] if self._begun else self.end

    def after(self, finishing: Collection[int]) -> tuple[int, list[range]]:
        """The value of `done` once these are finished too, and the finished offsets after it.

        (Offsets that were never added count as finished.)
        """
        left = [o for o in self._begun if o in self._open and o not in finishing]
        left.append(self.end)
        return left[0], [range(a + 1, b) for a, b in pairwise(left) if b > a + 1]


def write_ranges(ranges: Iterable[range], most: int | None = None) -> str:
    """Ascending ranges as a text for the metadata of a commit: the distance and the length of each.

    Ranges at the end that do not fit into `most` characters are left out.
    """
    parts, size, position = list[str](), -1, 0
    for each in ranges:
        part = f"{each.start - position:x}.{len(each):x}"
        size += len(part) + 1
        if most is not None and size > most:
            break
        parts.append(part)
        position = each.stop
    return "-".join(parts)


def read_ranges(text: str) -> list[range]:
    """The ranges that `text` has; none for another text."""
    ranges, position = list[range](), 0
    try:
        for distance, length in [part.split(".") for part in text.split("-")]:
            begin = position + int(distance, 16)
            position = begin + int(length, 16)
            ranges.append(range(begin, position))
    except ValueError:
        return []
    return ranges


_METADATA = re.compile(r"topic=(?P<topic>[0-9a-f]{32})(?: finished=(?P<finished>\S*))?", re.ASCII)


class Position(NamedTuple):
    """The first record that is not done yet, and the id of its topic.

    A topic that is deleted and created again counts from 0 under the old name, and once it is
    longer than the old topic, old offsets seem to fit. So the id is stored with the offset: for a
    consumer group in the metadata of the commit, for the recorder in SQL. It is None if it is not
    known. `finished_ranges` are the records after the offset that are done, as `write_ranges`
    writes them.
    """

    offset: int
    topic_id: str | None = None
    finished_ranges: str = ""

    def to_commit(self) -> OffsetAndMetadata:
        """The position as a group commits it."""
        if self.topic_id is None:
            return OffsetAndMetadata(self.offset, "")
        finished = f" finished={self.finished_ranges}" if self.finished_ranges else ""
        return OffsetAndMetadata(self.offset, f"topic={self.topic_id}{finished}")

    @classmethod
    def from_commit(cls, committed: OffsetAndMetadata) -> "Position":
        """The position in a commit. Metadata of another program name no topic."""
        found = _METADATA.fullmatch(committed.metadata or "")
        if found is None:
            return cls(committed.offset)
        return cls(committed.offset, found["topic"], found["finished"] or "")

    def may_belong_to(self, topic_id: str | None) -> bool:
        """Whether the position may be in the topic of this id; an unknown id may be any."""
        return self.topic_id is None or topic_id is None or self.topic_id == topic_id

    def topic_ended_before(self, new: "Position") -> bool:
        """Whether this position's topic was deleted, if the partition continues at `new`."""
        return new.offset < self.offset or not self.may_belong_to(new.topic_id)


Positions = Mapping[TopicPartition, Position]


class FinishedOffsets(OffsetTracker):
    """Tracks a partition whose records finish in any order, from its position on."""

    def __init__(self, begin: Position) -> None:
        super().__init__(begin.offset)
        self._topic_id = begin.topic_id
        self._before = read_ranges(begin.finished_ranges)

    def was_finished(self, offset: int) -> bool:
        """Whether an earlier owner of the partition finished the record."""
        at = bisect_right(self._before, offset, key=attrgetter("start")) - 1
        return at >= 0 and offset in self._before[at]

    def position(self, finishing: Collection[int] = (), most: int | None = None) -> Position:
        """The position to commit, once `finishing` are finished too, with `most` characters of
        finished ranges.

        Those that were finished before this assignment and are not read again yet are included.
        """
        (done, finished), end = self.after(finishing), self.end
        finished += [range(max(r.start, end), r.stop) for r in self._before if r.stop > end]
        return Position(done, self._topic_id, write_ranges(finished, most))


POSITION_SECONDS = 30.0
POSITIONING = "placing partitions"  # the kind of call, for ServerErrors


# Loads the positions at which partitions continue; a new partition is left out. Waits for servers.
LoadPositions = Callable[[Collection[TopicPartition]], Awaitable[Positions]]


async def committed_positions(
    cluster: KafkaCluster, group: str, errors: ServerErrors, partitions: Collection[TopicPartition]
) -> Positions:
    """The positions that the group has committed. Waits for brokers that are down."""
    fetch = partial(cluster.committed, group, partitions)
    found = await retry(fetch, errors, POSITIONING, deadline=POSITION_SECONDS)
    return {partition: Position.from_commit(each) for partition, each in found.items()}
