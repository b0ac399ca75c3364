"""Offsets finished in any order, against the plain definition of what may be committed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kafka.offsets import OffsetTracker


@given(st.data())
def test_what_is_done_has_no_gap(data: st.DataObject) -> None:
    gaps = data.draw(st.lists(st.integers(1, 4), max_size=40))
    upcoming = [100 + sum(gaps[: number + 1]) for number in range(len(gaps))]
    begun: list[int] = []
    finished: set[int] = set()
    offsets = OffsetTracker()
    while upcoming or len(finished) < len(begun):
        open_ = [offset for offset in begun if offset not in finished]
        if upcoming and (not open_ or data.draw(st.booleans())):
            begun.append(upcoming.pop(0))
            offsets.begin(begun[-1])
        else:
            done = data.draw(st.sampled_from(open_))
            finished.add(done)
            offsets.finish(done)
        assert offsets.done == _plainly(begun, finished)
        assert offsets.unfinished == len(begun) - len(finished)


def _plainly(begun: list[int], finished: set[int]) -> int | None:
    """The first that is not finished, else behind the last; None before anything is done."""
    for position, offset in enumerate(begun):
        if offset not in finished:
            return offset if position else None
    return begun[-1] + 1 if begun else None


@given(st.sets(st.integers(0, 60), min_size=1), st.data())
def test_what_would_be_done_is_what_then_is_done(begun: set[int], data: st.DataObject) -> None:
    """`after` says beforehand what `done` becomes, and which offsets behind it are finished."""
    offsets, left = OffsetTracker(), set(begun)
    for offset in sorted(begun):
        offsets.begin(offset)
    for offset in data.draw(st.sets(st.sampled_from(sorted(begun)))):
        offsets.finish(offset)
        left.discard(offset)
    finishing = data.draw(st.sets(st.sampled_from(sorted(left)))) if left else set()
    done, finished = offsets.after(finishing)
    for offset in finishing:
        offsets.finish(offset)
    left -= finishing
    assert done == offsets.done
    behind = {offset for each in finished for offset in each}
    first_open = min(left, default=max(begun) + 1)
    assert behind == set(range(first_open, max(begun) + 1)) - left


def test_an_offset_is_finished_once() -> None:
    offsets = OffsetTracker()
    offsets.begin(5)
    offsets.finish(5)
    with pytest.raises(KeyError):
        offsets.finish(5)


def test_offsets_ascend() -> None:
    offsets = OffsetTracker()
    offsets.begin(5)
    with pytest.raises(ValueError, match="5"):
        offsets.begin(5)
