"""Dead letters: records that cannot be processed or published, with a reason.

A dead letter never stops a partition.
"""

import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

from aiokafka import ConsumerRecord

from engine.kafka.errors import MessageTooLargeError
from engine.kafka.publisher import OnAcknowledged, Outgoing, Publisher
from engine.kafka.timestamps import format_instant
from engine.process.metrics import Metrics

_LONGEST_DETAIL = 500
# The prefix of headers that are copied from the original record: those of CloudEvents, the MQTT
# topic that names the receiver, the schema's id (engine/kafka/formats), and the trace context.
ORIGINAL = "original-"
_KEPT = ("ce_", "content-type", "mqtt.topic", "__value_schema_id", "traceparent", "tracestate")
_MOST_ORIGINAL_BYTES = 16 * 1024  # of their names and values together


class DeadLetterReason(StrEnum):
    """The closed list of reasons: header of the dead letter and label of the metric."""

    MALFORMED_JSON = "malformed_json"
    INVALID_FIELD = "invalid_field"
    TOO_LARGE = "too_large"
    UNKNOWN_COMPANY = "unknown_company"
    UNKNOWN_APPLICATION = "unknown_application"
    # Calls to customers' services: connectors.model.Fault.
    NO_CONNECTOR = "no_connector"
    CONNECTOR_SECRET = "connector_secret"  # noqa: S105
    CONNECTOR_STALE = "connector_stale"
    CONNECTOR_BREAKER = "connector_breaker"
    CONNECTOR_OVERLOAD = "connector_overload"
    CONNECTOR_FORBIDDEN = "connector_forbidden"
    CONNECTOR_UNREACHABLE = "connector_unreachable"
    CONNECTOR_TLS = "connector_tls"
    CONNECTOR_TIMEOUT = "connector_timeout"
    CONNECTOR_STATUS = "connector_status"
    CONNECTOR_REPLY = "connector_reply"
    CONNECTOR_REPLY_TOO_LARGE = "connector_reply_too_large"
    CONNECTOR_REQUEST = "connector_request"


class DeadLetter(NamedTuple):
    """A record that becomes a dead letter, and why. `detail` is for people."""

    record: ConsumerRecord[bytes, bytes]
    reason: DeadLetterReason
    detail: str

    def outgoing(self, topic: str, failed_at: float) -> Outgoing:
        """The message: the original key and value, byte for byte.

        Its headers say why and where the record failed. After them come copies of the original
        headers that are needed to decode the record, which a replay restores.
        """
        record = self.record
        headers = [
            ("reason", self.reason.encode()),
            ("detail", self.detail[:_LONGEST_DETAIL].encode()),
            ("topic", record.topic.encode()),
            ("partition", str(record.partition).encode()),
            ("offset", str(record.offset).encode()),
            ("failed_at", format_instant(failed_at).encode()),
            *_original_headers(record),
        ]
        return Outgoing(topic, record.key, record.value, headers, record.timestamp)


def _original_headers(record: ConsumerRecord[bytes, bytes]) -> list[tuple[str, bytes]]:
    """Copies of the headers that are needed to decode the value, and of the trace context.

    None if they are too large, because a part of them would be of no use.
    """
    headers_found = [each for each in record.headers if each[0].lower().startswith(_KEPT)]
    headers = [(f"{ORIGINAL}{name}", value or b"") for name, value in headers_found]
    size = sum(len(name) + len(value) for name, value in headers)
    return headers if size <= _MOST_ORIGINAL_BYTES else []


class MessageOfRecord(Protocol):
    """A message, and the record that caused it."""

    @property
    def message(self) -> Outgoing: ...
    @property
    def record(self) -> ConsumerRecord[bytes, bytes]: ...


Message = TypeVar("Message", bound=MessageOfRecord)


class DeadLetterPublisher:
    """Publishes messages, or dead letters in their place, and counts the dead letters.

    `topic` is the topic of dead letters; `clock` in epoch seconds. When a method returns, the
    brokers have acknowledged everything. Raises the errors of `Publisher.publish`, except for the
    size.
    """

    def __init__(
        self,
        *,
        topic: str,
        publisher: Publisher,
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._topic = topic
        self._publisher = publisher
        self._metrics = metrics
        self._clock = clock

    def publishing_with(self, publisher: Publisher) -> "DeadLetterPublisher":
        """A copy that publishes with `publisher`."""
        return DeadLetterPublisher(
            topic=self._topic, publisher=publisher, metrics=self._metrics, clock=self._clock
        )

    async def publish_or_dead_letter(
        self, messages: Sequence[Message], acknowledged: OnAcknowledged | None = None
    ) -> list[Message]:
        """Publish all messages. For messages that are too large for their topic, publish dead
        letters of their records instead; returns these messages.

        `acknowledged` receives the others as soon as the brokers have them.
        """
        if not messages:
            return []
        outgoing = [each.message for each in messages]
        try:
            await self._publisher.publish(outgoing, acknowledged)
        except MessageTooLargeError as error:
            too_large = {id(message) for message in error.messages}
        else:
            return []
        both = zip(messages, outgoing, strict=True)
        refused = [each for each, message in both if id(message) in too_large]
        await self.publish([_too_large(each) for each in refused])
        return refused

    async def publish(self, letters: Sequence[DeadLetter]) -> None:
        """Publish all dead letters.

        One that is itself too large is published without its value and, if that is not enough,
        without its key: its headers say where the original record is.
        """
        failed_at = self._clock()
        left = list(letters)
        unsent = {n: letter.outgoing(self._topic, failed_at) for n, letter in enumerate(left)}
        while unsent:
            try:
                await self._publisher.publish(list(unsent.values()))
                break
            except MessageTooLargeError as error:
                too_large = {id(message) for message in error.messages}
                unsent = {n: message for n, message in unsent.items() if id(message) in too_large}
                for n, message in unsent.items():
                    if message.key is None and message.value is None:
                        raise
                    left[n], unsent[n] = _smaller(left[n], message, failed_at)
        for letter in left:
            self._metrics.dead_letters.labels(letter.record.topic, letter.reason).inc()


def _smaller(
    letter: DeadLetter, message: Outgoing, failed_at: float
) -> tuple[DeadLetter, Outgoing]:
    """The letter without its value, or, if it has none, without its key."""
    left_out = message.key if message.value is None else message.value
    detail = f"{letter.reason}: {letter.detail}; left without its {len(left_out or b'')} bytes"
    letter = DeadLetter(letter.record, DeadLetterReason.TOO_LARGE, detail)
    headers = letter.outgoing(message.topic, failed_at).headers
    key = None if message.value is None else message.key
    return letter, message._replace(key=key, value=None, headers=headers)


def _too_large(refused: MessageOfRecord) -> DeadLetter:
    message = refused.message
    detail = f"the message for {message.topic} would have {len(message.value or b'')} bytes"
    return DeadLetter(refused.record, DeadLetterReason.TOO_LARGE, detail)
