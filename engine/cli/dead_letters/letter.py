"""A dead letter as it is read back, and whether and where it may be put back."""

import base64
from typing import Any, NamedTuple

from aiokafka import ConsumerRecord

from engine.kafka.dead_letters import DeadLetterReason
from engine.kafka.topics import Topics

_UNKNOWN = "?"


class Letter(NamedTuple):
    """`partition` and `offset` are its own; `origin` is topic/partition/offset of the original,
    as its headers say. `topic` is None when no header names one."""

    partition: int
    offset: int
    topic: str | None
    origin: str
    reason: str
    detail: str
    failed_at: str
    key: bytes | None
    value: bytes | None

    def obstacle(self, topics: Topics) -> str | None:
        """Why it cannot be put back where it came from, or None."""
        sources = [name for name in topics.all() if name != topics.dead_letters]
        if self.topic not in sources:
            return f"its topic {self.topic or 'is not named'} is none of {', '.join(sources)}"
        if self.value is None and self.reason == DeadLetterReason.TOO_LARGE:
            return f"its value was too large and was left out: the original is at {self.origin}"
        if self.reason == DeadLetterReason.TOO_LARGE and self.topic == topics.detections:
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
        """Everything, for a program; bytes that are no text as base64."""
        return {
            "origin": self.origin,
            "reason": self.reason,
            "detail": self.detail,
            "failed_at": self.failed_at,
            **_bytes("key", self.key),
            **_bytes("value", self.value),
            "partition": self.partition,
            "offset": self.offset,
        }


def read_letter(record: ConsumerRecord[bytes, bytes]) -> Letter:
    """The letter in a record of dead-letters."""
    headers = {name: value.decode("utf-8", "replace") for name, value in record.headers}
    topic = headers.get("topic")
    place = (topic or _UNKNOWN, *(headers.get(name, _UNKNOWN) for name in ("partition", "offset")))
    return Letter(
        partition=record.partition,
        offset=record.offset,
        topic=topic,
        origin="/".join(place),
        reason=headers.get("reason", _UNKNOWN),
        detail=headers.get("detail", ""),
        failed_at=headers.get("failed_at", ""),
        key=record.key,
        value=record.value,
    )


def _bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}
