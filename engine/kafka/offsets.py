"""How far a partition is done when its records are finished in any order. Pure."""

from collections.abc import Collection, Iterator
from itertools import pairwise


class OffsetTracker:
    """Offsets begun and not finished, in their order.

    What may be committed is what is finished without a gap. Only what is open takes memory,
    however much behind it is finished.
    """

    def __init__(self) -> None:
        self._open: dict[int, None] = {}
        self._end: int | None = None
        self._first: int | None = None

    def begin(self, offset: int) -> None:
        """A record was read; offsets come in ascending order, not always without gaps."""
        if self._end is not None and offset < self._end:
            raise ValueError(f"offset {offset} comes after {self._end - 1}")
        if self._first is None:
            self._first = offset
        self._open[offset] = None
        self._end = offset + 1

    def finish(self, offset: int) -> None:
        """It is done with. Raises KeyError for one that is not open."""
        del self._open[offset]

    @property
    def unfinished(self) -> int:
        """How many are open."""
        return len(self._open)

    @property
    def first(self) -> int | None:
        """The first offset that was begun."""
        return self._first

    @property
    def end(self) -> int | None:
        """Behind the last offset that was begun."""
        return self._end

    @property
    def done(self) -> int | None:
        """The offset to commit, behind which everything is yet to be done; None for none yet."""
        oldest = next(iter(self._open), self._end)
        return None if oldest == self._first else oldest

    def after(self, finishing: Collection[int]) -> tuple[int | None, list[range]]:
        """What `done` will be when these are finished, and what is then finished behind it.

        (OffsetTracker that were never begun, between others that were, count as finished.)
        """
        left = [offset for offset in self._open if offset not in finishing]
        if not left or self._end is None:
            return self._end, []
        done = None if left[0] == self._first else left[0]
        return done, list(_between([*left, self._end]))


def _between(edges: list[int]) -> Iterator[range]:
    for one, next_one in pairwise(edges):
        if next_one > one + 1:
            yield range(one + 1, next_one)
