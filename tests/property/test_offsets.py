"""Offsets finished in any order, compared with the plain definition of the offset to commit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kafka.offsets import OffsetTracker


@given(st.data())
def test_the_done_offset_has_no_gap(data: st.DataObject) -> None:
    gaps = data.draw(st.lists(st.integers(1, 4), max_size=40))
    upcoming = [100 + sum(gaps[: number + 1]) for number in range(len(gaps))]
    started: list[int] = []
    finished: set[int] = set()
    offsets = OffsetTracker()
    while upcoming or len(finished) < len(started):
        open_ = [offset for offset in started if offset not in finished]
        if upcoming and (not open_ or data.draw(st.booleans())):
            started.append(upcoming.pop(0))
            offsets.begin(started[-1])
        else:
            done = data.draw(st.sampled_from(open_))
            finished.add(done)
            offsets.finish(done)
        assert offsets.done == _plainly(started, finished)
        assert offsets.unfinished == len(started) - len(finished)


@given(st.lists(st.sets(st.integers(0, 20), min_size=1), max_size=5))
def test_several_started_at_once_are_started_one_after_the_other(batches: list[set[int]]) -> None:
    one, other = OffsetTracker(), OffsetTracker()
    for number, batch in enumerate(batches):
        offsets = [100 * number + offset for offset in sorted(batch)]
        one.begin_all(offsets)
        for offset in offsets:
            other.begin(offset)
        for each in (one, other):
            each.finish(offsets[-1])
        assert (one.first, one.end, one.done) == (other.first, other.end, other.done)
        assert one.unfinished == other.unfinished
    while one.done != one.end:
        oldest = min(one._open)
        for each in (one, other):
            each.finish(oldest)
        assert (one.done, one.unfinished) == (other.done, other.unfinished)


def test_one_slow_record_does_not_keep_what_finished_behind_it() -> None:
    offsets = OffsetTracker()
    offsets.begin(0)
    for number in range(1, 100_000):
        offsets.begin(number)
        offsets.finish(number)
    assert (offsets.done, offsets.unfinished) == (None, 1)
    assert len(offsets._begun) < 2000
    offsets.finish(0)
    assert offsets.done == 100_000


def _plainly(started: list[int], finished: set[int]) -> int | None:
    """The first that is not finished, else behind the last; None before anything is done."""
    for position, offset in enumerate(started):
        if offset not in finished:
            return offset if position else None
    return started[-1] + 1 if started else None


@given(st.sets(st.integers(0, 60), min_size=1), st.data())
def test_the_predicted_done_offset_is_right(started: set[int], data: st.DataObject) -> None:
    """`after` says beforehand what `done` becomes, and which offsets behind it are finished."""
    offsets, left = OffsetTracker(), set(started)
    for offset in sorted(started):
        offsets.begin(offset)
    for offset in data.draw(st.sets(st.sampled_from(sorted(started)))):
        offsets.finish(offset)
        left.discard(offset)
    finishing = data.draw(st.sets(st.sampled_from(sorted(left)))) if left else set()
    done, finished = offsets.after(finishing)
    for offset in finishing:
        offsets.finish(offset)
    left -= finishing
    assert done == offsets.done
    behind = {offset for each in finished for offset in each}
    first_open = min(left, default=max(started) + 1)
    assert behind == set(range(first_open, max(started) + 1)) - left


def test_an_offset_is_finished_once() -> None:
    offsets = OffsetTracker()
    offsets.begin(5)
    offsets.finish(5)
    with pytest.raises(KeyError):
        offsets.finish(5)


def test_offsets_ascend() -> None:
    offsets = OffsetTracker()
    offsets.begin(5)
    with pytest.raises(ValueError, match=r"^offset 5 comes after 5$"):
        offsets.begin(5)


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["open", "finishing", "finished"]))))
def test_the_predicted_ranges_are_right(records: list[tuple[int, str]]) -> None:
    """`after` says beforehand what is to be committed once more records finish."""
    offsets, started, finishing = OffsetTracker(), [], []
    offset = 100
    for gap, state in records:
        offset += gap
        started.append(offset)
        offsets.begin(offset)
        if state == "finished":
            offsets.finish(offset)
        elif state == "finishing":
            finishing.append(offset)
    done, behind = offsets.after(finishing)
    for each in finishing:
        offsets.finish(each)
    open_ = [o for (_, state), o in zip(records, started, strict=True) if state == "open"]
    assert (done, offsets.unfinished) == (offsets.done, len(open_))
    assert done == _plainly(started, set(started) - set(open_))
    # Offsets that were never added, between others, count as finished.
    first_open = open_[0] if open_ else offset
    plain = set(range(first_open + 1, offset + 1)) - set(open_) if open_ else set()
    assert {number for each in behind for number in each} == plain
