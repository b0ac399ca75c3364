from engine.cli.publish.item import Item
from engine.cli.publish.pace import Pace, PaceKeeper, RecordedPace, SteadyPace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def waits(pace: Pace, times: list[float], clock: Clock) -> list[float]:
    """What each item waits when every wait is waited out."""
    waiting = PaceKeeper(pace, clock)
    waited = []
    for recorded in times:
        waited.append(round(waiting.wait_before(Item(b"a", b"{}", recorded)), 6))
        clock.now += waited[-1]
    return waited


def test_without_a_pace_nothing_waits() -> None:
    assert waits(Pace(), [0.0, 5.0, 9.0], Clock()) == [0.0, 0.0, 0.0]


def test_a_rate_spaces_evenly() -> None:
    assert waits(SteadyPace(4), [0.0] * 4, Clock()) == [0.0, 0.25, 0.25, 0.25]


def test_recorded_distances_are_kept_and_compressed() -> None:
    times = [1000.0, 1010.0, 1010.0, 1005.0, 1030.0]
    assert waits(RecordedPace(10), times, Clock()) == [0.0, 1.0, 0.0, 0.0, 2.0]


def test_whoever_is_a_little_late_catches_up() -> None:
    clock = Clock()
    waiting = PaceKeeper(SteadyPace(10), clock)
    item = Item(b"a", b"{}")
    assert waiting.wait_before(item) == 0.0
    clock.now += 0.5
    assert [waiting.wait_before(item) for _ in range(5)] == [0.0] * 5
    assert waiting.wait_before(item) > 0.0


def test_whoever_is_very_late_does_not_flood() -> None:
    clock = Clock()
    waiting = PaceKeeper(SteadyPace(10), clock)
    item = Item(b"a", b"{}")
    waiting.wait_before(item)
    clock.now += 1000.0
    at_once = 0
    while waiting.wait_before(item) == 0.0:
        at_once += 1
    assert at_once <= 11
