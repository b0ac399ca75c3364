"""Ids that were seen lately, in bounded memory: a run of hours has more of them than fit."""

import time
from collections import deque
from collections.abc import Callable, Hashable

_SLOT_SECONDS = 60.0
_SLOTS = 20


class RecentIds:
    """Knows an id for about twenty minutes. Repeats come within seconds of a crash; one that came
    later would be counted as one message too many, and said."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._slots: deque[set[Hashable]] = deque([set()], maxlen=_SLOTS)
        self._until = clock() + _SLOT_SECONDS

    def is_new(self, id_: Hashable) -> bool:
        """Whether it was not seen; it is, from now on."""
        if self._clock() >= self._until:
            self._slots.append(set())
            self._until = self._clock() + _SLOT_SECONDS
        if any(id_ in slot for slot in self._slots):
            return False
        self._slots[-1].add(id_)
        return True
