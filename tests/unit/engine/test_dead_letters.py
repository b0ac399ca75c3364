"""Dead letters and their limit."""

import pytest

from engine.kafka.dead_letters import (
    DeadLetter,
    DeadLetterLimit,
    DeadLetterReason,
    TooManyDeadLettersError,
)
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


def test_a_run_is_counted_over_batches():
    limit = DeadLetterLimit(share=1, run=5)
    limit.note(4, [2, 3])
    limit.note(2, [0, 1])
    with pytest.raises(TooManyDeadLettersError, match="5 records in a row"):
        limit.note(1, [0])


def test_one_good_record_ends_a_run():
    limit = DeadLetterLimit(share=1, run=3)
    for _ in range(10):
        limit.note(3, [0, 1])
        limit.note(3, [1, 2])
        limit.note(1, [])


def test_a_run_within_a_batch():
    limit = DeadLetterLimit(share=1, run=3)
    limit.note(6, [0, 1, 3, 4])
    with pytest.raises(TooManyDeadLettersError):
        limit.note(8, [1, 2, 3, 7])


def test_a_share_counts_only_once_there_is_enough_to_judge():
    limit = DeadLetterLimit(share=0.5, run=10_000)
    limit.note(998, list(range(998)))
    limit.note(1, [])
    with pytest.raises(TooManyDeadLettersError, match="998 of the last 1000"):
        limit.note(1, [])


def test_a_share_looks_at_the_last_thousand():
    limit = DeadLetterLimit(share=0.5, run=10_000)
    limit.note(500, list(range(500)))
    limit.note(1000, [])
    limit.note(1000, list(range(500)))
    with pytest.raises(TooManyDeadLettersError):
        limit.note(1000, list(range(501)))


def test_the_limit_can_be_opened():
    limit = DeadLetterLimit(share=1, run=10**9)
    limit.note(5000, list(range(5000)))
