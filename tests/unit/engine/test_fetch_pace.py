"""The pause between fetches of few records."""

from hypothesis import given
from hypothesis import strategies as st

from engine.kafka.fetch_pace import FetchPace


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_record_that_comes_alone_is_followed_by_no_pause():
    clock = Clock()
    pace = FetchPace(5000, clock)
    for _ in range(5):
        assert pace.pause_after(1) == 0
        clock.now += 0.02


def test_records_at_irregular_moments_are_followed_by_no_pause_if_there_are_few_fetches():
    clock = Clock()
    pace = FetchPace(5000, clock)
    for wait in (0.001, 0.02, 0.004, 0.03, 0.002, 0.003, 0.015, 0.001, 0.02) * 5:
        assert pace.pause_after(1) == 0
        clock.now += wait


def test_a_backlog_is_fetched_without_a_pause_and_leaves_none():
    pace = FetchPace(5000, Clock())
    assert [pace.pause_after(5000) for _ in range(100)] == [0] * 100
    assert pace.pause_after(1) == 0


def test_a_full_fetch_is_followed_by_no_pause_however_small_batches_are():
    pace = FetchPace(50, Clock())
    assert [pace.pause_after(50) for _ in range(100)] == [0] * 100
    assert [pace.pause_after(49) > 0 for _ in range(10)][-1]


def test_an_empty_fetch_is_followed_by_no_pause():
    pace = FetchPace(5000, Clock())
    assert [pace.pause_after(1) for _ in range(10)][-1] > 0
    assert pace.pause_after(0) == 0


@given(st.lists(st.floats(0, 0.03), min_size=1, max_size=200))
def test_few_records_are_fetched_about_a_hundred_times_a_second_at_most(waits: list[float]):
    clock = Clock()
    pace, begin = FetchPace(5000, clock), clock.now
    for wait in waits:
        clock.now += wait
        clock.now += pace.pause_after(1)
    assert clock.now - begin > 0.01 * (len(waits) - 1) - 0.05 - 1e-6


@given(st.lists(st.floats(0, 0.03), min_size=1, max_size=200))
def test_no_pause_is_longer_than_ten_milliseconds(waits: list[float]):
    clock = Clock()
    pace = FetchPace(5000, clock)
    for wait in waits:
        clock.now += wait
        pause = pace.pause_after(3)
        assert 0 <= pause < 0.01 + 1e-6
        clock.now += pause
