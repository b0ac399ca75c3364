"""When the next detection is due."""

from collections.abc import Callable

from engine.cli.publish.item import Item

_LATEST = 1.0  # seconds: what is later than this is not caught up by a burst

Clock = Callable[[], float]


class Pace:
    """Seconds from the first item to a given one. This one: all at once."""

    def due(self, position: int, item: Item) -> float:
        """When the item at `position` (from 0) is due, in seconds from the first one."""
        del position, item
        return 0.0


class SteadyPace(Pace):
    """So many a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def due(self, position: int, item: Item) -> float:
        """Evenly spaced."""
        del item
        return position / self._rate


class RecordedPace(Pace):
    """As they were recorded, `speed` times as fast. Items must have their `recorded`."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._first: float | None = None

    def due(self, position: int, item: Item) -> float:
        """The recorded distance from the first, compressed; one from before it is due at once."""
        del position
        recorded = item.recorded or 0.0
        if self._first is None:
            self._first = recorded
        return (recorded - self._first) / self._speed


class Waiting:
    """Turns a pace into seconds to wait. `clock` gives monotonic seconds.

    Whoever is late by more than a second (a broker was away) goes on from there at the same
    pace, and does not flood what has just come back.
    """

    def __init__(self, pace: Pace, clock: Clock) -> None:
        self._pace = pace
        self._clock = clock
        self._begin: float | None = None
        self._position = 0

    def before(self, item: Item) -> float:
        """How long to wait before `item`, the next one, is sent: 0 when it is due."""
        now = self._clock()
        if self._begin is None:
            self._begin = now
        late = now - self._begin - self._pace.due(self._position, item)
        self._position += 1
        if late > _LATEST:
            self._begin += late - _LATEST
        return max(0.0, -late)
