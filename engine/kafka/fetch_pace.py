"""When records are fetched: how soon again, and how long a broker may wait for new ones."""

import time
from collections.abc import Callable

from aiokafka import AIOKafkaConsumer

_BETWEEN_SECONDS = 0.01
_SAVED_SECONDS = 0.05  # of pauses that were not needed: a few fetches may follow each other closely
_FEW = 250
_BESIDE_FULL_MS = 10


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


class FetchWait:
    """How long a broker may hold the answer to a fetch if no partition of it has new records.

    aiokafka has one fetch at a time under way to each broker. While a partition is full, the fetch
    is for the other partitions. If they have nothing new, the partition that has room again would
    wait for the end of that fetch. So the fetches beside a full partition wait 10 ms at most, in
    which the partition handles the rest of its records (docs/decisions/0125).
    """

    def __init__(self, consumer: AIOKafkaConsumer, wait_ms: int) -> None:
        self._consumer = consumer
        self._wait_ms = wait_ms

    def note(self, *, any_full: bool) -> None:
        """Whether any partition is full from now on."""
        wait_ms = min(self._wait_ms, _BESIDE_FULL_MS) if any_full else self._wait_ms
        self._consumer._fetcher._fetch_max_wait_ms = wait_ms  # noqa: SLF001  # no public way
