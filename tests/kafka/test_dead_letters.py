"""Dead letters: their headers, what is too large, and the limit on their number."""

from collections.abc import Iterable
from typing import Any

import pytest

from engine.kafka.dead_letters import (
    PATIENCE,
    DeadLetter,
    DeadLetterLimit,
    DeadLetterPublisher,
    DeadLetterReason,
    TooManyDeadLettersError,
)
from engine.kafka.producer import MessageTooLargeError, Outgoing, message_size
from engine.process.metrics import Metrics
from tests.kafka.records import record


def test_a_dead_letter_is_the_original_with_its_story():
    letter = DeadLetter(record(b"\xff", key=None), DeadLetterReason.MALFORMED_JSON, "d" * 501)
    outgoing = letter.outgoing("proximity.dead-letters", 1_795_165_200.0)
    assert (outgoing.topic, outgoing.key, outgoing.value) == (
        "proximity.dead-letters",
        None,
        b"\xff",
    )
    assert dict(outgoing.headers) == {
        "reason": b"malformed_json",
        "detail": b"d" * 500,
        "topic": b"proximity.detections",
        "partition": b"3",
        "offset": b"7",
        "failed_at": b"2026-11-20T09:00:00+0000",
    }


def dead(records: list[Any]) -> list[DeadLetter]:
    return [DeadLetter(each, DeadLetterReason.MALFORMED_JSON, "") for each in records]


class Stream:
    """Batches of one partition, one record a key that is named; `-` before it marks a bad one."""

    def __init__(self, **limits: float) -> None:
        self.now = 1000.0
        self.offset = 0
        self.limit = DeadLetterLimit(
            share=limits.get("share", 0.999), run=int(limits.get("run", 10**9)), clock=self.clock
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
        records = self.batch(names)
        bad = [each for each, name in zip(records, names, strict=True) if name[0] == "-"]
        self.limit.note(records, dead(bad))


def test_a_run_is_of_different_keys_and_lasts_a_while():
    stream = Stream(run=5)
    stream.note(*(f"-{n}" for n in range(50)))
    stream.now += PATIENCE - 0.1
    stream.note("-1")
    stream.now += 0.1
    with pytest.raises(TooManyDeadLettersError, match="different keys failed"):
        stream.note("-1")


def test_invented_keys_stop_no_sender_whose_records_decode():
    """Whatever the share of the records, and of the keys, that it sends."""
    stream = Stream(run=1000, share=0.5)
    stream.note(*(f"phone {n}" for n in range(1000)))
    for number in range(20):
        stream.note(*(f"-{number}.{n}" for n in range(2000)), f"phone {number}")
        stream.now += PATIENCE


def test_a_broken_producer_is_recognized_by_its_earlier_keys():
    stream = Stream(run=10**9, share=0.5)
    for start in range(0, 16_000, 100):  # a few of each batch are remembered
        stream.note(*(f"phone {n}" for n in range(start, start + 100)))

    def go_wrong() -> None:
        for number in range(16_000):
            stream.note(f"-phone {number}", "a phone that is good")

    with pytest.raises(TooManyDeadLettersError, match="of 1000 keys whose records were good, 501"):
        go_wrong()


class SmallTopics:
    """A publisher of topics that take messages of at most `most` bytes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.left: list[Outgoing] = []

    async def publish(self, messages: Any, _acknowledged: Any = None) -> None:
        too_large = [each for each in messages if message_size(each) > self.most]
        self.left += [each for each in messages if message_size(each) <= self.most]
        if too_large:
            raise MessageTooLargeError(too_large)


def publishing(publisher: Any) -> tuple[DeadLetterPublisher, Metrics]:
    metrics = Metrics()
    letters = DeadLetterPublisher(
        topic="dead", publisher=publisher, metrics=metrics, clock=lambda: 0.0
    )
    return letters, metrics


def counted(metrics: Metrics) -> dict[str, float]:
    return {
        sample.labels["reason"]: sample.value
        for family in metrics.dead_letters.collect()
        for sample in family.samples
        if sample.name == "proximity_dead_letters_total"
    }


@pytest.mark.parametrize("key", [b"k", b"k" * 2000, None])
async def test_a_dead_letter_too_large_leaves_without_its_value(key: bytes | None):
    topics = SmallTopics(10)
    letters, metrics = publishing(topics)
    good = DeadLetter(record(b"g"), DeadLetterReason.INVALID_FIELD, "-")
    large = DeadLetter(record(b"v" * 12, key=key), DeadLetterReason.MALFORMED_JSON, "why")
    await letters.publish([large, good])
    (sent,) = [each for each in topics.left if each.value != b"g"]
    assert (sent.key, sent.value) == (b"k" if key == b"k" else None, None)
    assert counted(metrics) == {"too_large": 1, "invalid_field": 1}
    story = dict(sent.headers)
    assert (story["reason"], story["offset"]) == (b"too_large", b"7")
    assert b"malformed_json: why; left without its " in story["detail"]
    assert len(topics.left) == 2
