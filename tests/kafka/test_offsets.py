"""Offsets that finish in any order, against a model."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.kafka.offsets import (
    MOST_CHARACTERS,
    FinishedOffsets,
    OffsetTracker,
    Position,
    read_ranges,
    write_ranges,
)


@given(st.data())
def test_the_done_offset_has_no_gap(data: st.DataObject) -> None:
    gaps = data.draw(st.lists(st.integers(1, 4), max_size=40))
    upcoming = [100 + sum(gaps[: number + 1]) for number in range(len(gaps))]
    started: list[int] = []
    finished: set[int] = set()
    offsets = OffsetTracker(100)
    while upcoming or len(finished) < len(started):
        open_ = [offset for offset in started if offset not in finished]
        if upcoming and (not open_ or data.draw(st.booleans())):
            started.append(upcoming.pop(0))
            offsets.begin_all(started[-1:], started[-1] + 1)
        else:
            done = data.draw(st.sampled_from(open_))
            finished.add(done)
            offsets.finish_all([done])
        assert offsets.done == _plainly(started, finished)
        assert offsets.unfinished == len(started) - len(finished)


def test_one_slow_record_does_not_keep_what_finished_behind_it() -> None:
    offsets = OffsetTracker(0)
    offsets.begin_all([0], 1)
    for number in range(1, 100_000):
        offsets.begin_all([number], number + 1)
        offsets.finish_all([number])
    assert (offsets.done, offsets.unfinished) == (0, 1)
    assert len(offsets._begun) < 2000
    offsets.finish_all([0])
    assert offsets.done == 100_000


def _plainly(started: list[int], finished: set[int]) -> int:
    """The first that is not finished, else behind the last; 100 before anything is started."""
    return next((each for each in started if each not in finished), [99, *started][-1] + 1)


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["open", "finishing", "finished"]))))
def test_the_predicted_ranges_are_right(records: list[tuple[int, str]]) -> None:
    """`after` says beforehand what is to be committed once more records finish."""
    offsets, started, finishing = OffsetTracker(100), [], []
    offset = 100
    for gap, state in records:
        offset += gap
        started.append(offset)
        offsets.begin_all([offset], offset + 1)
        if state == "finished":
            offsets.finish_all([offset])
        elif state == "finishing":
            finishing.append(offset)
    done, behind = offsets.after(finishing)
    for each in finishing:
        offsets.finish_all([each])
    open_ = [o for (_, state), o in zip(records, started, strict=True) if state == "open"]
    assert (done, offsets.unfinished) == (offsets.done, len(open_))
    assert done == _plainly(started, set(started) - set(open_))
    # Offsets that were never added, between others, count as finished.
    first_open = open_[0] if open_ else offset
    plain = set(range(first_open + 1, offset + 1)) - set(open_) if open_ else set()
    assert {number for each in behind for number in each} == plain


offsets = st.integers(0, 2**62)


@given(st.sets(st.integers(0, 3000)), st.integers(0, 2**60))
def test_finished_offsets_are_known_to_the_next_owner(finished: set[int], base: int) -> None:
    numbers = sorted(base + each for each in finished)
    ranges: list[range] = []
    for number in numbers:
        if ranges and ranges[-1].stop == number:
            ranges[-1] = range(ranges[-1].start, number + 1)
        else:
            ranges.append(range(number, number + 1))
    assert read_ranges(write_ranges(ranges)) == ranges
    offsets = FinishedOffsets(Position(base, None, write_ranges(ranges)))
    known = [n for n in range(base - 1, base + 3002) if offsets.was_finished(n)]
    assert known == numbers
    offsets.begin_all([base + 1499], base + 1500)
    finished_ranges = offsets.position().finished_ranges
    left = [number for each in read_ranges(finished_ranges) for number in each]
    assert left == [number for number in numbers if number >= base + 1500]


def test_a_text_that_is_too_long_leaves_out_the_last_ranges() -> None:
    ranges = [range(3 * number, 3 * number + 1) for number in range(1, 2000)]
    text = write_ranges(ranges, MOST_CHARACTERS)
    kept = read_ranges(text)
    assert MOST_CHARACTERS - 50 < len(text) <= MOST_CHARACTERS
    assert kept == ranges[: len(kept)]


@given(offsets, st.uuids(), st.sampled_from(["", "3.1-2.f"]))
def test_a_place_is_read_as_it_was_committed(offset: int, topic: Any, finished: str) -> None:
    place = Position(offset, topic.hex, finished)
    assert Position.from_commit(place.to_commit()) == place
    assert Position.from_commit(Position(offset).to_commit()) == Position(offset)
