"""Recently seen ids in bounded memory, because a run of hours has too many ids."""

import time
from collections import deque
from collections.abc import Callable, Hashable

_SLOT_SECONDS = 60.0
_SLOTS = 20


class RecentIds:
    """Remembers an id for about twenty minutes. Repeats follow a crash within seconds; a
    later one would be counted and reported as one message too many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._slots: deque[set[Hashable]] = deque([set()], maxlen=_SLOTS)
        self._until = clock() + _SLOT_SECONDS

    def is_new(self, id_: Hashable) -> bool:
        """Add an id. Returns whether it is new."""
        if self._clock() >= self._until:
            self._slots.append(set())
            self._until = self._clock() + _SLOT_SECONDS
        if any(id_ in slot for slot in self._slots):
            return False
        self._slots[-1].add(id_)
        return True
