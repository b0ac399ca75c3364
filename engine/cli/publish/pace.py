"""Decides when the next detection is due."""

from collections.abc import Callable

from engine.cli.publish.item import Item

_LATEST = 1.0  # seconds: a longer delay is not made up for by a burst

Clock = Callable[[], float]


class Pace:
    """Says when each item is due. The base class publishes all at once."""

    def due(self, position: int, item: Item) -> float:
        """When the item at `position` (from 0) is due, in seconds from the first one."""
        del position, item
        return 0.0


class SteadyPace(Pace):
    """`rate` items a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate

    def due(self, position: int, item: Item) -> float:
        """Evenly spaced."""
        del item
        return position / self._rate


class RecordedPace(Pace):
    """The recorded times, `speed` times as fast. Items must have their `recorded`."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._first: float | None = None

    def due(self, position: int, item: Item) -> float:
        """The recorded distance from the first item, compressed; an earlier item is due at once."""
        del position
        recorded = item.recorded or 0.0
        if self._first is None:
            self._first = recorded
        return (recorded - self._first) / self._speed


class PaceKeeper:
    """Says how long to wait before each item. `clock` gives monotonic seconds.

    A sender that is more than a second late (a broker was down) continues at the same pace from
    then on, so that it does not flood a broker that has just come back.
    """

    def __init__(self, pace: Pace, clock: Clock) -> None:
        self._pace = pace
        self._clock = clock
        self._begin: float | None = None
        self._position = 0

    def wait_before(self, item: Item) -> float:
        """The seconds to wait before `item`, the next one, is sent; 0 if it is due."""
        now = self._clock()
        if self._begin is None:
            self._begin = now
        late = now - self._begin - self._pace.due(self._position, item)
        self._position += 1
        if late > _LATEST:
            self._begin += late - _LATEST
        return max(0.0, -late)
