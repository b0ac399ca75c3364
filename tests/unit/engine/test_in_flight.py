"""The bounds on the records that a process holds."""

from engine.trigger.in_flight import InFlightBytes, ReadAhead, RecordParts, value_bytes
from tests.unit.engine.records import record


def test_there_is_room_until_the_bound_and_again_below() -> None:
    held = InFlightBytes(1000)
    held.hold(999)
    assert held.has_room()
    held.hold(1)
    assert not held.has_room()
    held.hold(-1)
    assert held.has_room()


def test_all_turns_together_are_a_sixteenth_of_the_bound() -> None:
    held = InFlightBytes(16 * 1024 * 1024)
    assert held.turns * held.turn_bytes == 1024 * 1024
    assert InFlightBytes(2**40).turn_bytes == 1024 * 1024


def test_the_value_bytes_records_is_that_of_their_values() -> None:
    assert value_bytes([]) == 0
    assert value_bytes([record(b"x")]) == -1  # as made here; aiokafka says how many bytes it read


def test_a_partition_stays_near_what_is_done() -> None:
    ahead = ReadAhead(200)
    assert ahead.has_room(1000, None)  # nothing is ahead: a batch always goes on
    ahead.take(100, 100)
    ahead.take(150, 50)
    assert ahead.has_room(50, None)
    assert not ahead.has_room(51, 99)
    assert ahead.has_room(150, 100)
    assert ahead.has_room(1000, 150)


def test_once_informed_of_commits_it_stays_near_those() -> None:
    ahead = ReadAhead(200)
    ahead.take(200, 200)
    ahead.note_committed(0)
    assert not ahead.has_room(1, 200)
    ahead.note_committed(200)
    assert ahead.has_room(200, 200)


def test_gaps_between_offsets_are_no_records() -> None:
    ahead = ReadAhead(200)
    ahead.take(1_000_000, 100)
    assert ahead.has_room(100, 5)


def test_a_record_of_several_parts_is_finished_with_the_last_of_them() -> None:
    parts = RecordParts()
    several, single = record(b"{}", offset=7), record(b"{}", offset=8)
    assert parts.note([several, several, single, several]) == [several, single]
    assert parts.finish([several]) == []
    assert parts.finish([single, several]) == [single]
    assert parts.finish([several]) == [several]
    assert parts.finish([single]) == [single]  # nothing is left to be counted
