"""How far a partition is done when its records are finished in any order. Pure."""


class Offsets:
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
    def done(self) -> int | None:
        """The offset to commit, behind which everything is yet to be done; None for none yet."""
        oldest = next(iter(self._open), self._end)
        return None if oldest == self._first else oldest
