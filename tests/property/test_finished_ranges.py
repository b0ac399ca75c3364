"""The metadata beside a committed offset: all finished offsets are read back, and they fit."""

from typing import Any

from aiokafka.structs import OffsetAndMetadata
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.connector.transactional_results import TransactionalResults
from engine.kafka.offsets import MOST_CHARACTERS, FinishedRanges, OffsetTracker
from engine.kafka.positions import Position

offsets = st.integers(0, 2**62)


@given(st.sets(st.integers(0, 3000)), st.integers(0, 2**60))
def test_text_and_back(finished: set[int], base: int) -> None:
    numbers = sorted(base + each for each in finished)
    ranges: list[range] = []
    for number in numbers:
        if ranges and ranges[-1].stop == number:
            ranges[-1] = range(ranges[-1].start, number + 1)
        else:
            ranges.append(range(number, number + 1))
    read = FinishedRanges.read(FinishedRanges(ranges).text())
    assert [number for number in range(base - 1, base + 3002) if number in read] == numbers
    assert [number for each in read.beyond(base + 1500) for number in each] == [
        number for number in numbers if number >= base + 1500
    ]


def test_a_text_has_no_padding_and_ends_as_its_last_length_does() -> None:
    for length in range(1, 129):
        for begin in (3, 200, 20_000):
            finished = FinishedRanges([range(begin, begin + length)])
            assert not finished.text().endswith("=")
            assert FinishedRanges.read(finished.text()).beyond(0) == [range(begin, begin + length)]


def test_ranges_from_an_offset_on_are_never_empty() -> None:
    finished = FinishedRanges([range(3, 5), range(7, 9)])
    assert finished.beyond(4) == [range(4, 5), range(7, 9)]
    assert finished.beyond(5) == [range(7, 9)]
    assert finished.beyond(9) == []
    assert "7" not in finished


def test_of_another_text_nothing_is_read() -> None:
    text = FinishedRanges([range(200, 300)]).text()
    assert FinishedRanges.read(text).beyond(0) == [range(200, 300)]
    assert FinishedRanges.read(f"{text}!!!!").beyond(0) == []
    odd = FinishedRanges([range(200, 300), range(301, 310)]).text()[: len(text) + 2]
    assert FinishedRanges.read(odd).beyond(0) == []


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert -1 not in FinishedRanges.read(text)


@given(offsets, st.uuids(), st.sampled_from(["", "AQ", "_-8"]))
def test_a_place_is_read_as_it_was_committed(offset: int, topic: Any, finished: str) -> None:
    place = Position(offset, topic.hex, finished)
    assert Position.from_commit(place.to_commit()) == place
    assert Position.from_commit(Position(offset).to_commit()) == Position(offset)


@given(offsets, st.text())
def test_anybodys_metadata_is_read(offset: int, metadata: str) -> None:
    assert Position.from_commit(OffsetAndMetadata(offset, metadata)).offset == offset


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=200))
def test_the_predicted_ranges(records: list[tuple[bool, bool]]) -> None:
    """Each record, with gaps between some, is finished, finishing now, or open."""
    tracked, finishing, done_with, offset = OffsetTracker(), [], set(), 10
    for is_finished, is_finishing in records:
        tracked.begin(offset)
        if is_finished:
            done_with.add(offset)
            tracked.finish(offset)
        elif is_finishing:
            finishing.append(offset)
        offset += 1 + offset % 3 // 2
    done, ranges = tracked.after(finishing)
    for each in finishing:
        tracked.finish(each)
    assert done == tracked.done
    behind = {each for each in done_with | set(finishing) if each >= (done or 10)}
    found = {number for each in ranges for number in each}
    assert behind <= found
    assert not found & set(tracked._open)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2500), st.integers(1, 4))
def test_as_much_leaves_as_fits_beside_the_offset(count: int, spread: int) -> None:
    nothing: Any = None
    transactional = TransactionalResults(
        steps=nothing,
        transactions=nothing,
        publisher=nothing,
        place=Position(0, "0" * 32),
        memory=nothing,
    )
    for offset in range(count * spread + 1):
        transactional.offsets.begin(offset)
    results = [
        number * spread + 1 for number in range(count) if number * spread + 1 < count * spread
    ]
    fits = transactional.fitting(results)
    assert len(transactional.metadata(results[:fits])) <= MOST_CHARACTERS
    if fits < len(results):
        assert len(transactional.metadata(results[: fits + 1])) > MOST_CHARACTERS
    place = Position(0, "0" * 32, transactional.metadata(results[:fits]))
    assert len(place.to_commit().metadata) <= 4096
