"""Caps by brute force: whatever is sent, no stretch of a cap's length has more than it allows."""

from bisect import insort
from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from rules.caps import next_place, refusing_cap
from rules.model import Cap

times = st.integers(0, 120).map(float)
caps = st.lists(st.builds(Cap, st.integers(1, 4), st.integers(1, 60)), max_size=3).map(tuple)


def holds(sent: list[float], cap: Cap) -> bool:
    """Each stretch of so many seconds that begins with a notification has at most so many."""
    return all(sum(a <= each < a + cap.seconds for each in sent) <= cap.most for a in sent)


def allowed(sent: list[float], at: float, caps: tuple[Cap, ...]) -> bool:
    return all(holds([*sent, at], cap) for cap in caps)


def sent_by(requests: list[float], caps: tuple[Cap, ...]) -> list[float]:
    """What is sent of these requests, in order of time."""
    sent: list[float] = []
    for at in requests:
        if allowed(sent, at, caps):
            insort(sent, at)
    return sent


@given(st.lists(times, max_size=30), times, caps)
def test_a_place_is_free_where_every_stretch_has_room(
    requests: list[float], at: float, caps: tuple[Cap, ...]
) -> None:
    sent = sent_by(requests, caps)
    refusing = refusing_cap(sent, at, caps)
    assert (refusing is None) == allowed(sent, at, caps)
    assert refusing is None or not holds([*sent, at], refusing)
    opens = next_place(sent, at, caps)
    assert allowed(sent, opens, caps)
    assert opens == next(t for t in range(ceil(at), 500) if allowed(sent, t, caps))
