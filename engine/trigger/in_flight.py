"""Bounds the records that a process holds: in bytes, and in records that are not committed."""

from collections import Counter, deque
from operator import attrgetter

from engine.kafka.partition_worker import Records

_SMALLEST_TURN = 64 * 1024
_LARGEST_TURN = 1024 * 1024
_TURNS = 4

_size = attrgetter("serialized_value_size")


class InFlightBytes:
    """Counts the bytes of records that are fetched and not finished, against a bound.

    Messages are composed a turn at a time. All turns together stay within a sixteenth of the bound,
    and within a third with the stalled ones (engine/trigger/fair_turns.py). If the largest message
    is larger than that, a turn may take a little more than that message.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self.turns = _TURNS
        self.turn_bytes = min(_LARGEST_TURN, max(_SMALLEST_TURN, most // 64))

    def has_room(self) -> bool:
        """Whether more may be fetched."""
        return self._held < self._most

    def hold(self, size: int) -> None:
        """Add bytes in flight; a negative size subtracts them."""
        self._held += size


def value_bytes(records: Records) -> int:
    """The bytes of the records' values."""
    return sum(map(_size, records))


class ReadAhead:
    """Counts the records of a partition that are taken in and not committed.

    Until the first commit is noted, it counts the records that are not done. Records finish in any
    order, so a crash may repeat all of these records.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._pieces: deque[tuple[int, int]] = deque()  # end offset, records
        self._records = 0
        self._committed: int | None = None

    def take(self, end: int, records: int) -> None:
        """Count records up to the offset `end` as taken in."""
        self._pieces.append((end, records))
        self._records += records

    def note_committed(self, offset: int) -> None:
        """All records before `offset` are committed."""
        self._committed = offset

    def has_room(self, more: int, done: int | None) -> bool:
        """Whether so many more records stay within the bound; always if none are ahead."""
        behind = done if self._committed is None else self._committed
        while behind is not None and self._pieces and self._pieces[0][0] <= behind:
            self._records -= self._pieces.popleft()[1]
        return not self._records or self._records + more <= self._most


class RecordParts:
    """Counts the unfinished parts of records that hold several detections that may fire.

    Such a record is finished with the last of them, whichever companies they belong to.
    """

    def __init__(self) -> None:
        self._left: dict[int, int] = {}  # by offset

    def note(self, unfinished: Records) -> Records:
        """Each record once, of a list that has a record once for each of its parts."""
        parts = Counter(record.offset for record in unfinished)
        self._left |= {offset: count for offset, count in parts.items() if count > 1}
        return list({record.offset: record for record in unfinished}.values())

    def finish(self, parts: Records) -> Records:
        """A part of each of these records is finished: the records without another part."""
        if not self._left:
            return parts
        return [record for record in parts if self._is_last_part(record.offset)]

    def _is_last_part(self, offset: int) -> bool:
        left = self._left.pop(offset, 1) - 1
        if left:
            self._left[offset] = left
        return not left
