"""Tracks the offset to commit when records finish in any order. Pure."""

import base64
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise

# The brokers' offset.metadata.max.bytes is 4096, and the topic's id is part of the metadata.
MOST_CHARACTERS = 3900
_SPARE = 1000  # finished offsets behind an unfinished one that are kept at least


class OffsetTracker:
    """Tracks the unfinished offsets of a partition, in order.

    The offset to commit is that of the first unfinished record. Memory grows with the number of
    unfinished records only.
    """

    def __init__(self) -> None:
        self._open: set[int] = set()
        # In order. (The first key of a dict is found by passing all that were deleted before it.)
        self._begun: deque[int] = deque()
        self._end: int | None = None
        self._first: int | None = None

    def begin(self, offset: int) -> None:
        """Add an offset that was read. Offsets ascend, not always without gaps."""
        if self._end is not None and offset < self._end:
            raise ValueError(f"offset {offset} comes after {self._end - 1}")
        if self._first is None:
            self._first = offset
        self._open.add(offset)
        self._begun.append(offset)
        self._end = offset + 1

    def begin_all(self, offsets: Sequence[int]) -> None:
        """Add several offsets, in ascending order."""
        if offsets:
            self.begin(offsets[0])
            self._open.update(offsets)
            self._begun.extend(offsets[1:])
            self._end = offsets[-1] + 1

    def finish(self, offset: int) -> None:
        """Note the offset as finished. Raises KeyError for one that is not unfinished."""
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
    def first(self) -> int | None:
        """The first offset that was added."""
        return self._first

    @property
    def end(self) -> int | None:
        """The offset after the last one that was added."""
        return self._end

    @property
    def done(self) -> int | None:
        """The offset to commit, before which everything is finished; None if there is none yet."""
        oldest = self._begun[0] if self._begun else self._end
        return None if oldest == self._first else oldest

    def after(self, finishing: Collection[int]) -> tuple[int | None, list[range]]:
        """The value of `done` once these are finished too, and the finished offsets after it.

        (Offsets that were never added, between others that were, count as finished.)
        """
        left = [o for o in self._begun if o in self._open and o not in finishing]
        if not left or self._end is None:
            return self._end, []
        done = None if left[0] == self._first else left[0]
        return done, list(_between([*left, self._end]))


def _between(edges: list[int]) -> Iterator[range]:
    for one, next_one in pairwise(edges):
        if next_one > one + 1:
            yield range(one + 1, next_one)


class FinishedRanges:
    """Finished offsets, as ascending ranges. Their text fits into the metadata of a commit."""

    def __init__(self, ranges: Sequence[range] = ()) -> None:
        self._ranges = ranges
        self._begins = [each.start for each in ranges]

    def __contains__(self, offset: object) -> bool:
        if not isinstance(offset, int):
            return False
        at = bisect_right(self._begins, offset) - 1
        return at >= 0 and offset in self._ranges[at]

    def beyond(self, end: int) -> list[range]:
        """The ranges from `end` on."""
        return [range(max(each.start, end), each.stop) for each in self._ranges if each.stop > end]

    def text(self) -> str:
        """The distances and lengths in turn, seven bits a byte, in base64."""
        raw, position = bytearray(), 0
        for each in self._ranges:
            for number in (each.start - position, len(each)):
                while number >= 0x80:
                    raw.append(number & 0x7F | 0x80)
                    number >>= 7
                raw.append(number)
            position = each.stop
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    @classmethod
    def read(cls, text: str) -> "FinishedRanges":
        """The ranges that `text` wrote; empty for any other text."""
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            numbers = list(_numbers(raw))
            pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
        except ValueError:
            return cls()
        ranges, position = [], 0
        for distance, length in pairs:
            ranges.append(range(position + distance, position + distance + length))
            position += distance + length
        return cls(ranges)


def _numbers(raw: bytes) -> Iterator[int]:
    number, shift = 0, 0
    for byte in raw:
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            yield number
            number, shift = 0, 0
