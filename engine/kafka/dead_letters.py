"""Dead letters: what cannot be processed, or not be published, is set aside with a reason, and
never stops a partition."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, Protocol, TypeVar

import structlog
from aiokafka import ConsumerRecord
from aiokafka.errors import InvalidTimestampError

from engine.kafka.publisher import MessageTooLargeError, Outgoing, Publisher
from engine.kafka.timestamps import format_instant

log = structlog.get_logger(__name__)

_LONGEST_DETAIL = 500


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
    """A record that goes aside, and why. `detail` is for a person."""

    record: ConsumerRecord[bytes, bytes]
    reason: DeadLetterReason
    detail: str

    def outgoing(self, topic: str, failed_at: float) -> Outgoing:
        """The original key and value, byte for byte, with the story in the headers."""
        record = self.record
        headers = [
            ("reason", self.reason.encode()),
            ("detail", self.detail[:_LONGEST_DETAIL].encode()),
            ("topic", record.topic.encode()),
            ("partition", str(record.partition).encode()),
            ("offset", str(record.offset).encode()),
            ("failed_at", format_instant(failed_at).encode()),
        ]
        return Outgoing(topic, record.key, record.value, headers)


class MessageOfRecord(Protocol):
    """A message, and the record that led to it."""

    @property
    def message(self) -> Outgoing: ...
    @property
    def record(self) -> ConsumerRecord[bytes, bytes]: ...


Message = TypeVar("Message", bound=MessageOfRecord)


class Published(NamedTuple, Generic[Message]):
    """`sent` left as they are. For each of `refused`, which its topic does not take, a dead letter
    left in its place; `dead_letters` are all that left."""

    sent: list[Message]
    refused: list[Message]
    dead_letters: list[DeadLetter]


async def publish_or_dead_letter(
    publisher: Publisher, messages: Sequence[Message], *, topic: str, failed_at: float
) -> Published[Message]:
    """Publish all, acknowledged by the brokers; what is too large for its topic becomes a dead
    letter of its record, on `topic`. Raises what `Publisher.publish` does, but for the size."""
    outgoing = [each.message for each in messages]
    try:
        await publisher.publish(outgoing)
    except MessageTooLargeError as error:
        too_large = {id(message) for message in error.messages}
    else:
        return Published(list(messages), [], [])
    sent, refused = list[Message](), list[Message]()
    for each, message in zip(messages, outgoing, strict=True):
        (refused if id(message) in too_large else sent).append(each)
    letters = [_too_large(each) for each in refused]
    letters = await publish_dead_letters(publisher, letters, topic=topic, failed_at=failed_at)
    return Published(sent, refused, letters)


async def publish_dead_letters(
    publisher: Publisher, letters: Sequence[DeadLetter], *, topic: str, failed_at: float
) -> list[DeadLetter]:
    """Publish all, acknowledged by the brokers; the letters as they left.

    One that is itself too large leaves without its value, and if that is not enough without its
    key: its headers say where the original lies.
    """
    left = list(letters)
    unsent = {number: each.outgoing(topic, failed_at) for number, each in enumerate(left)}
    while unsent:
        try:
            await publisher.publish(list(unsent.values()))
            break
        except InvalidTimestampError:
            if any(message.timestamp is not None for message in unsent.values()):
                raise
            # This host's clock is wrong by an hour or more; Kafka took what the records say.
            log.error("Kafka refuses this host's clock: it is wrong")  # noqa: TRY400
            for number, message in unsent.items():
                unsent[number] = message._replace(timestamp=left[number].record.timestamp)
        except MessageTooLargeError as error:
            too_large = {id(message) for message in error.messages}
            unsent = {n: message for n, message in unsent.items() if id(message) in too_large}
            for number, message in unsent.items():
                left_out = message.key if message.value is None else message.value
                if left_out is None:
                    raise
                left[number] = _without(left_out, left[number])
                key = None if message.value is None else message.key
                smaller = left[number].outgoing(topic, failed_at)
                unsent[number] = smaller._replace(key=key, value=None, timestamp=message.timestamp)
    return left


def _too_large(refused: MessageOfRecord) -> DeadLetter:
    message = refused.message
    detail = f"the message for {message.topic} would have {len(message.value or b'')} bytes"
    return DeadLetter(refused.record, DeadLetterReason.TOO_LARGE, detail)


def _without(left_out: bytes, letter: DeadLetter) -> DeadLetter:
    detail = f"{letter.reason}: {letter.detail}; left without its {len(left_out)} bytes"
    return DeadLetter(letter.record, DeadLetterReason.TOO_LARGE, detail)
