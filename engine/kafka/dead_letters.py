"""Dead letters: records that cannot be processed or published, with a reason.

A dead letter never stops a partition.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import NamedTuple, TypeVar

import msgspec
from aiokafka import ConsumerRecord

from connectors.model import CallFault
from engine.kafka.messages import format_instant
from engine.kafka.producer import (
    MessageTooLargeError,
    OnAcknowledged,
    Outgoing,
    Publisher,
    message_size,
)
from engine.kafka.workers import Records
from engine.process.metrics import Metrics

PATIENCE = 10.0  # seconds without one good record
RUN = 1000  # different keys that fail while no record is good
_KNOWN = 1000  # remembered keys whose records were good
_NOTED_OF_A_BATCH = 16  # a sample, because nearly all records are good
_BYTES_OF_A_VALUE = 256


class TooManyDeadLettersError(Exception):
    """The records of too many senders cannot be decoded, so a deployment is probably wrong.

    Stops the process; the message says what to do.
    """


@dataclass(eq=False)
class DeadLetterLimit:
    """Stops a role when too many different senders fail.

    That is when `run` different keys fail and no record is good, or when more than the part `share`
    of the last 1000 good keys fail now. All partitions of a topic share a limit: one for each would
    be reached by a single bad sender in a quiet partition. A batch that is read again changes
    nothing. `clock` in seconds.
    """

    share: float
    _: KW_ONLY
    run: int = RUN
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._since = 0.0
        self._failing: set[int] = set()  # since the last good record
        self._known: OrderedDict[int, bool] = OrderedDict()  # key understood once: fails now

    def note(self, records: Records, letters: Sequence["DeadLetter"]) -> None:
        """Count a batch of one partition, and those of its records that failed.

        Raises TooManyDeadLettersError. Call it before anything of the batch is published.
        """
        if not records:
            return
        dead = {letter.record.offset for letter in letters}
        failed = {_name(letter.record) for letter in letters}
        good = [each for each in records if each.offset not in dead] if dead else records
        if good:
            self._failing.clear()
            # Where records fail, every good key counts, and new ones push out none that are known.
            for record in good[:: 1 if dead else max(1, len(good) // _NOTED_OF_A_BATCH)]:
                name = _name(record)
                if not dead or name in self._known or len(self._known) < _KNOWN:
                    self._known[name] = False
                    self._known.move_to_end(name)
            while len(self._known) > _KNOWN:
                self._known.popitem(last=False)
        else:
            if not self._failing:
                self._since = self.clock()
            if len(self._failing) < self.run:
                self._failing |= failed
        self._known.update((name, True) for name in failed & self._known.keys())
        if letters and self.share < 1:
            self._judge()

    def _judge(self) -> None:
        failing, seconds = len(self._failing), self.clock() - self._since
        known, fallen = len(self._known), sum(self._known.values())
        if self.run <= failing and seconds >= PATIENCE:
            found = f"the records of {failing} different keys failed, and none was good for "
            found += f"{seconds:.0f} s"
        elif known >= _KNOWN and fallen > self.share * known:
            found = f"of {known} keys whose records were good, {fallen} fail now"
        else:
            return
        raise TooManyDeadLettersError(
            f"{found}: nothing of this batch was published; repair the producer, or raise "
            f"PROXIMITY_DEAD_LETTER_SHARE from {self.share:g} (1 lets all through)"
        )


def _name(record: ConsumerRecord[bytes, bytes]) -> int:
    """The sender of a record: its key, or without a key the beginning of its value."""
    if record.key is not None:
        return hash(record.key)
    return hash((record.value or b"")[:_BYTES_OF_A_VALUE])


_LONGEST_DETAIL = 500
_LONGEST_KEY = 4 * 255  # bytes of a udid
# The prefix of headers that are copied from the original record: those of CloudEvents, the MQTT
# topic that names the receiver, and the trace context.
ORIGINAL = "original-"
_KEPT = ("ce_", "content-type", "mqtt.topic", "api_key", "traceparent", "tracestate")
_MOST_ORIGINAL_BYTES = 16 * 1024  # of their names and values together


class DeadLetterReason(StrEnum):
    """Why a record could not be decoded or belongs to nobody."""

    MALFORMED_JSON = "malformed_json"
    INVALID_FIELD = "invalid_field"
    UNKNOWN_COMPANY = "unknown_company"
    UNKNOWN_APPLICATION = "unknown_application"


# The closed list of reasons: header of the dead letter and label of the metric.
REASONS = (*DeadLetterReason, *CallFault)


class DeadLetter(NamedTuple):
    """A record that becomes a dead letter, and why. `detail` is for people."""

    record: ConsumerRecord[bytes, bytes]
    reason: DeadLetterReason | CallFault
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
        return Outgoing(topic, record.key, record.value, headers)


def _original_headers(record: ConsumerRecord[bytes, bytes]) -> list[tuple[str, bytes]]:
    """Copies of the headers that are needed to decode the value, and of the trace context.

    None if they are too large, because a part of them would be of no use.
    """
    headers_found = [each for each in record.headers if each[0].lower().startswith(_KEPT)]
    headers = [(f"{ORIGINAL}{name}", value or b"") for name, value in headers_found]
    size = sum(len(name) + len(value) for name, value in headers)
    return headers if size <= _MOST_ORIGINAL_BYTES else []


Message = TypeVar("Message", bound=Outgoing)


@dataclass(kw_only=True)
class DeadLetterPublisher:
    """Publishes messages, or dead letters in their place, and counts the dead letters.

    `topic` is the topic of dead letters; `clock` in epoch seconds. When a method returns, the
    brokers have acknowledged everything. Raises the errors of `Publisher.publish`, except for the
    size.
    """

    topic: str
    publisher: Publisher
    metrics: Metrics
    clock: Callable[[], float] = time.time

    async def publish_or_dead_letter(
        self,
        messages: Sequence[Message],
        acknowledged: OnAcknowledged | None = None,
    ) -> list[Message]:
        """Publish all messages. For messages that are too large for their topic, publish dead
        letters of their records (their attribute `record`) instead; returns these messages.

        `acknowledged` is as for Publisher.publish.
        """
        if not messages:
            return []
        try:
            await self.publisher.publish(messages, acknowledged)
        except MessageTooLargeError as error:
            refused = error.messages
        else:
            return []
        letters = []
        for each in refused:
            detail = f"the message for {each.topic} would have {message_size(each)} bytes"
            letters.append(DeadLetter(each.record, CallFault.TOO_LARGE, detail))
        await self.publish(letters)
        return refused

    async def publish(self, letters: Sequence[DeadLetter]) -> None:
        """Publish all dead letters.

        One that is itself too large is published without its value, and without a key that is
        longer than any udid: its headers say where the original record is.
        """
        if not letters:
            return
        failed_at = self.clock()
        left = list(letters)
        outgoing = [letter.outgoing(self.topic, failed_at) for letter in left]
        try:
            await self.publisher.publish(outgoing)
        except MessageTooLargeError as error:
            too_large = {id(message) for message in error.messages}
            smaller = []
            for n, message in enumerate(outgoing):
                if id(message) in too_large:
                    was, size = left[n], message_size(message)
                    detail = f"{was.reason}: {was.detail}; left without its {size} bytes"
                    left[n] = DeadLetter(was.record, CallFault.TOO_LARGE, detail)
                    key = message.key if len(message.key or b"") <= _LONGEST_KEY else None
                    small = left[n].outgoing(self.topic, failed_at)
                    smaller.append(msgspec.structs.replace(small, key=key, value=None))
            await self.publisher.publish(smaller)
        for letter in left:
            self.metrics.dead_letters.labels(letter.record.topic, letter.reason).inc()
