"""Reads a dead letter from its topic, and checks whether it can be replayed."""

import base64
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

from aiokafka import ConsumerRecord, TopicPartition

from engine.kafka.dead_letters import ORIGINAL, DeadLetterReason
from engine.kafka.topic_reader import Offsets, TopicReader
from engine.kafka.topics import Topics

_UNKNOWN = "?"


class Letter(NamedTuple):
    """A record of dead-letters. `place` and `offset` are its own; `origin` is the
    topic/partition/offset of the original, as its headers say. `topic` is None when no header
    names one. `headers` are the original's.
    """

    place: TopicPartition
    offset: int
    topic: str | None
    origin: str
    reason: str
    detail: str
    failed_at: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]

    def obstacle(self, topics: Topics) -> str | None:
        """Why the letter cannot be put back on its topic, or None."""
        sources = [name for name in topics.all() if name != topics.dead_letters]
        if self.topic not in sources:
            return f"its topic {self.topic or 'is not named'} is none of {', '.join(sources)}"
        if self.value is None and self.reason == DeadLetterReason.TOO_LARGE:
            return f"its value was too large and was left out: the original is at {self.origin}"
        if self.reason == DeadLetterReason.TOO_LARGE and self.topic in topics.all_detections:
            return (
                "only the notification was too large, the detection itself is counted: shorten "
                "the campaign, and the device's next detection fires it"
            )
        return None

    def shown_value(self, longest: int) -> str:
        """The first bytes of the value for a person, on one line."""
        if self.value is None:
            return "(null)"
        text = self.value[:longest].decode("utf-8", "backslashreplace")
        printable = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
        return printable + ("…" if len(self.value) > longest else "")

    def as_json(self) -> dict[str, Any]:
        """All fields for programs; bytes that are no text as base64."""
        return {
            "origin": self.origin,
            "reason": self.reason,
            "detail": self.detail,
            "failed_at": self.failed_at,
            **_bytes("key", self.key),
            **_bytes("value", self.value),
            "partition": self.place.partition,
            "offset": self.offset,
        }


def read_letter(record: ConsumerRecord[bytes, bytes]) -> Letter:
    """The letter in a record of dead-letters."""
    headers = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}
    origin = (headers.get(name, _UNKNOWN) for name in ("topic", "partition", "offset"))
    return Letter(
        place=TopicPartition(record.topic, record.partition),
        offset=record.offset,
        topic=headers.get("topic"),
        origin="/".join(origin),
        reason=headers.get("reason", _UNKNOWN),
        detail=headers.get("detail", ""),
        failed_at=headers.get("failed_at", ""),
        key=record.key,
        value=record.value,
        headers=[
            (name.removeprefix(ORIGINAL), value or b"")
            for name, value in record.headers
            if name.startswith(ORIGINAL)
        ],
    )


async def read_letters(reader: TopicReader, starts: Offsets) -> AsyncGenerator[list[Letter], None]:
    """The letters that the partitions of `starts` have now, in lists of one partition each.

    A start that a partition does not have (it was deleted, or the topic was recreated) is its
    beginning. Raises KafkaError, and TimeoutError if no record arrives within the deadline.
    """
    ranges = await reader.ranges(starts)
    begins = {
        tp: starts[tp] if begin <= starts[tp] <= end else begin
        for tp, (begin, end) in ranges.items()
    }
    ends = {tp: end for tp, (_, end) in ranges.items()}
    async for records in reader.records_until(begins, ends):
        yield [read_letter(record) for record in records]


def _bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}
