"""How soon records are fetched again, so that records that come one by one are handled together."""

import time
from collections.abc import Callable

_BETWEEN_SECONDS = 0.01
_SAVED_SECONDS = 0.05  # of pauses that were not needed: a few fetches may follow each other closely
_FEW = 250


class FetchPace:
    """Keeps fetches of few records 10 ms apart, on average.

    `most` is how many records a fetch may bring: as many are not few. `clock` in seconds.

    A cycle of fetch, decisions, claims and acknowledgement costs nearly the same for one record as
    for ten. Without a pace a process that receives a thousand records a second uses most of its
    core for cycles of one or two, and each of them waits for the others (docs/decisions/0123).

    What is fetched is handed over first, so a record that comes alone is never delayed. Up to a
    hundred fetches a second, pauses are rare, even if records come at irregular moments.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._few = min(_FEW, most)
        self._clock = clock
        self._next = float("-inf")

    def pause_after(self, fetched: int) -> float:
        """Seconds to wait after a fetch of so many records."""
        if not 0 < fetched < self._few:
            return 0.0
        now = self._clock()
        pause = max(0.0, self._next - now)
        self._next = max(self._next, now - _SAVED_SECONDS) + _BETWEEN_SECONDS
        return pause
