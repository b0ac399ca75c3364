"""Dead letters and their limit."""

from collections.abc import Iterable
from typing import Any

import pytest

from engine.kafka.dead_letter_limit import PATIENCE, DeadLetterLimit, TooManyDeadLettersError
from engine.kafka.dead_letters import DeadLetter, DeadLetterReason
from tests.unit.engine.records import record


def test_a_dead_letter_is_the_original_with_its_story():
    letter = DeadLetter(record(b"\xff", key=None), DeadLetterReason.MALFORMED_JSON, "byte 0")
    outgoing = letter.outgoing("proximity.dead-letters", 1_795_165_200.0)
    assert (outgoing.topic, outgoing.key, outgoing.value) == (
        "proximity.dead-letters",
        None,
        b"\xff",
    )
    assert dict(outgoing.headers) == {
        "reason": b"malformed_json",
        "detail": b"byte 0",
        "topic": b"proximity.detections",
        "partition": b"3",
        "offset": b"7",
        "failed_at": b"2026-11-20T09:00:00+0000",
    }


class Stream:
    """Batches of one partition, one record a key that is named; `-` before it marks a bad one."""

    def __init__(self, **limits: float) -> None:
        self.now = 1000.0
        self.offset = 0
        self.limit = DeadLetterLimit(
            share=limits.get("share", 1.0), run=int(limits.get("run", 10**9)), clock=self.clock
        )

    def clock(self) -> float:
        return self.now

    def batch(self, names: Iterable[str]) -> list[Any]:
        records = []
        for name in names:
            records.append(record(b"", offset=self.offset, key=name.strip("-").encode()))
            self.offset += 1
        return records

    def note(self, *names: str) -> None:
        self.limit.note(self.batch(names), [n for n, name in enumerate(names) if name[0] == "-"])


def test_a_run_is_of_different_keys_and_lasts_a_while():
    stream = Stream(run=5)
    stream.note(*(f"-{n}" for n in range(50)))
    stream.now += PATIENCE - 0.1
    stream.note("-1")
    stream.now += 0.1
    with pytest.raises(TooManyDeadLettersError, match="50 different keys failed"):
        stream.note("-1")


def test_one_key_is_one_however_many_its_records():
    stream = Stream(run=5, share=0.1)
    for _ in range(100):
        stream.note(*["-junk"] * 1000)
        stream.now += 1


def test_records_without_a_key_are_told_apart_by_their_value():
    stream = Stream(run=3)
    bodies = [record(b"%d" % (n % 2), offset=n, key=None) for n in range(100)]
    stream.limit.note(bodies[:50], list(range(50)))
    stream.now += 60
    stream.limit.note(bodies[50:], list(range(50)))
    other = [record(b"other", offset=100, key=None)]
    with pytest.raises(TooManyDeadLettersError, match="3 different keys"):
        stream.limit.note(other, [0])


def test_one_good_record_ends_a_run():
    stream = Stream(run=3)
    for number in range(50):
        stream.note(*(f"-{number}.{n}" for n in range(1000)))
        stream.now += 9
        stream.note("good")
        stream.now += 9


def test_a_sender_that_invents_keys_stops_nobody_who_is_understood():
    """Whatever the share of the records, and of the keys, that it sends."""
    stream = Stream(run=1000, share=0.5)
    stream.note(*(f"phone {n}" for n in range(1000)))
    for number in range(20):
        stream.note(*(f"-{number}.{n}" for n in range(2000)), f"phone {number}")
        stream.now += 5


def test_a_producer_gone_wrong_is_seen_by_those_it_served_before():
    stream = Stream(run=10**9, share=0.5)
    for start in range(0, 16_000, 100):  # a few of each batch are remembered
        stream.note(*(f"phone {n}" for n in range(start, start + 100)))

    def go_wrong() -> None:
        for number in range(16_000):
            stream.note(f"-phone {number}", "a phone that is good")

    with pytest.raises(TooManyDeadLettersError, match="of 1000 keys whose records were good, 501"):
        go_wrong()


def test_half_of_those_served_before_may_fail_and_come_back():
    stream = Stream(share=0.5)
    for _ in range(5):
        stream.note(*(f"phone {n}" for n in range(1000)))
        stream.note(*(f"-phone {n}" for n in range(500)), "phone 999")
        stream.note(*(f"phone {n}" for n in range(500)), "-somebody")


def test_a_batch_that_is_read_again_counts_once():
    """While SQL is away the recorder reads a batch again and again: 50 bad ones stopped it."""
    stream = Stream(run=51, share=0.1)
    batch = stream.batch(f"{n}" for n in range(50))
    for _ in range(100):
        stream.limit.note(batch, list(range(50)))
        stream.now += 1


def test_memory_is_bounded():
    stream = Stream(run=10**9)
    for number in range(120):
        stream.note(*(f"-{number}.{n}" for n in range(1000)))
        stream.now += 1
    assert len(stream.limit._failing) <= 100_000
    for number in range(120):
        stream.note(*(f"{number}.{n}" for n in range(1000)), "-bad")
    assert len(stream.limit._known) <= 1000
