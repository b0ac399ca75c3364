"""Publishes lists of messages: one request for each partition, no await for each message."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerClosed,
    ProducerFenced,
    UnknownProducerId,
)

from engine.kafka.batch_sender import (
    LARGEST_MESSAGE,
    BatchSender,
    FailedBatch,
    OnAcknowledged,
    Outgoing,
    TopicLimits,
    message_size,
)
from engine.kafka.client_options import connection_options
from engine.kafka.errors import MessageTooLargeError
from engine.kafka.record_time import RecordTime
from engine.process.failures import kafka_may_recover
from engine.process.retry import Backoff
from engine.process.server_errors import ServerErrors
from engine.process.settings import Settings

__all__ = ["OnAcknowledged", "Outgoing", "Publisher"]

log = structlog.get_logger(__name__)

_ROOM_FOR_HEADERS = 1024 * 1024
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0

# Errors after which the brokers refuse everything that this producer sends: its sequence has a gap
# since they refused a batch for its size or timestamp, or they no longer know it. (Closed: another
# task has replaced it already.)
_COUNT_LOST = (
    MessageSizeTooLargeError,
    InvalidTimestampError,
    OutOfOrderSequenceNumber,
    UnknownProducerId,
    ProducerFenced,
    ProducerClosed,
)

_RENEWALS_AT_ONCE = 3
_PUBLISHING = "publishing"


class _Arrived:
    """The messages of one `publish` that the brokers have acknowledged."""

    def __init__(self, acknowledged: OnAcknowledged | None) -> None:
        self._acknowledged = acknowledged
        self._batches: list[Sequence[Outgoing]] = []

    def note(self, messages: Sequence[Outgoing]) -> None:
        """The brokers have these."""
        self._batches.append(messages)
        if self._acknowledged is not None:
            self._acknowledged(messages)

    def without(self, messages: Iterable[Outgoing]) -> list[Outgoing]:
        """Those of the messages that have not arrived."""
        arrived = {id(message) for batch in self._batches for message in batch}
        return [message for message in messages if id(message) not in arrived]


class Publisher:
    """Publishes lists of messages and returns when the brokers have acknowledged all of them.

    Tasks may share it. `make` returns a producer that is not started yet, `record_time` gives the
    timestamps of records, and `limits` knows the sizes that topics refused.
    """

    def __init__(
        self,
        *,
        make: Callable[[], AIOKafkaProducer],
        deadline: float,
        errors: ServerErrors | None = None,
        record_time: RecordTime | None = None,
        limits: TopicLimits | None = None,
    ) -> None:
        self._make = make
        self._errors = errors or ServerErrors("kafka", may_recover=kafka_may_recover)
        self._producer = make()
        self._renewing = asyncio.Lock()
        self._deadline = deadline
        self._sender = BatchSender(limits or TopicLimits(), record_time or RecordTime())

    @classmethod
    def from_settings(
        cls,
        settings: Settings,
        errors: ServerErrors | None = None,
        record_time: RecordTime | None = None,
    ) -> "Publisher":
        """A publisher with its own idempotent producer; `start` connects it.

        `errors` counts each failed try that is followed by another one.
        """
        make = partial(
            AIOKafkaProducer,
            **connection_options(settings),
            enable_idempotence=True,
            acks="all",
            max_batch_size=LARGEST_MESSAGE + _ROOM_FOR_HEADERS,
            linger_ms=0,
        )
        deadline = settings.kafka_request_timeout
        return cls(make=make, deadline=deadline, errors=errors, record_time=record_time)

    async def start(self) -> None:
        """Connect. Raises KafkaError or TimeoutError."""
        async with asyncio.timeout(self._deadline):
            await self._producer.start()

    async def close(self) -> None:
        """Disconnect within the deadline. Messages of finished `publish` calls are acknowledged."""
        try:
            async with asyncio.timeout(self._deadline):
                await self._producer.stop()
        except TimeoutError:
            log.warning("closing took too long", what="producer", seconds=self._deadline)

    async def publish(
        self, messages: Sequence[Outgoing], acknowledged: OnAcknowledged | None = None
    ) -> None:
        """Publish all, with retries after temporary errors; repeats keep their content.

        `acknowledged` receives messages as soon as the brokers have them: those of one partition
        may have to wait for its leader. What it received is not sent again.

        Raises MessageTooLargeError after all other messages are published, and KafkaError for
        permanent errors (authorisation; this host's clock, if a message has no other time).
        """
        unsent, too_large = self._split(messages)
        arrived = _Arrived(acknowledged)
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        renewals = 0
        while unsent:
            producer = self._producer
            failed = await self._attempt(producer, unsent, arrived)
            if not failed:
                self._errors.answered(_PUBLISHING)
                break
            too_large += [each.messages[0] for each in failed if each.is_one_too_large]
            unsent = [m for each in failed if not each.is_one_too_large for m in each.messages]
            cause = _deciding(failed)
            if isinstance(cause, _COUNT_LOST):
                await self._renew(producer)
                renewals += 1
                if renewals <= _RENEWALS_AT_ONCE:
                    self._errors.inc()
                    continue  # the fresh producer knows nothing of what went wrong
            elif not (isinstance(cause, Exception) and kafka_may_recover(cause)):
                raise cause
            if unsent:
                self._errors.failed(cause, _PUBLISHING)
                await backoff.pause()
        if too_large:
            raise MessageTooLargeError(too_large)

    async def _attempt(
        self, producer: AIOKafkaProducer, messages: list[Outgoing], arrived: _Arrived
    ) -> list[FailedBatch]:
        """Send the messages once and return the failed ones. Raises a final timestamp refusal."""
        try:
            async with asyncio.timeout(self._deadline):
                failed = await self._sender.send(producer, messages, arrived.note)
        except (KafkaError, TimeoutError) as error:
            # The state of all others is unknown.
            return [FailedBatch(arrived.without(messages), error)]
        final = next((each.error for each in failed if each.is_final), None)
        if final is not None:
            raise final
        return failed

    def _split(self, messages: Sequence[Outgoing]) -> tuple[list[Outgoing], list[Outgoing]]:
        """The messages that their topics may accept, and those that are known to be too large."""
        refused_from = self._sender.limits.refused_from
        bounds = {topic: refused_from(topic) for topic in {each.topic for each in messages}}
        if max(map(message_size, messages), default=0) < min(bounds.values(), default=1):
            return list(messages), []
        fitting, too_large = list[Outgoing](), list[Outgoing]()
        for message in messages:
            refused = message_size(message) >= bounds[message.topic]
            (too_large if refused else fitting).append(message)
        return fitting, too_large

    async def _renew(self, worn: AIOKafkaProducer) -> None:
        """Replace the producer.

        Its sequence of batches has a gap that the brokers never accept. Batches of other tasks that
        are under way fail and are sent again.
        """
        async with self._renewing:
            if self._producer is not worn:
                return  # another task has replaced it
            fresh = self._make()
            try:
                async with asyncio.timeout(self._deadline):
                    await fresh.start()
            except (KafkaError, TimeoutError) as error:
                await fresh.stop()
                if not kafka_may_recover(error):
                    raise
                self._errors.failed(error, _PUBLISHING)
                return
            self._producer = fresh
        with suppress(KafkaError, TimeoutError):  # its senders have seen the error
            async with asyncio.timeout(self._deadline):
                await worn.stop()


def _deciding(failed: Sequence[FailedBatch]) -> BaseException:
    """The error that decides what happens next; a mere replacement of the producer comes last."""
    errors = [each.error for each in failed]
    return next((error for error in errors if not isinstance(error, _COUNT_LOST)), errors[0])
