"""Records that the recorder alone reads, and cannot use: they become dead letters."""

import time
from collections.abc import Callable

import structlog
from aiokafka.errors import InvalidTimestampError

from engine.kafka.dead_letters import DeadLetter, DeadLetterReason
from engine.kafka.publisher import MessageTooLargeError, Outgoing, Publisher
from engine.process.metrics import Metrics

log = structlog.get_logger(__name__)


class DeadLetterPublisher:
    """Publishes and counts dead letters. `topic` is where they go, `clock` epoch seconds."""

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

    async def publish(self, letters: list[DeadLetter]) -> None:
        """Publish them all, acknowledged by the brokers."""
        if not letters:
            return
        now = self._clock()
        messages = {id(letter): letter.outgoing(self._topic, now) for letter in letters}
        try:
            await self._publish(list(messages.values()), letters)
        except MessageTooLargeError as error:
            refused = {id(message) for message in error.messages}
            letters = [
                _without_value(letter) if id(messages[id(letter)]) in refused else letter
                for letter in letters
            ]
            again = [letter for letter in letters if id(letter) not in messages]
            empty = [each.outgoing(self._topic, now)._replace(value=None) for each in again]
            await self._publish(empty, again)
        for letter in letters:
            self._metrics.dead_letters.labels(letter.record.topic, letter.reason).inc()

    async def _publish(self, messages: list[Outgoing], letters: list[DeadLetter]) -> None:
        try:
            await self._publisher.publish(messages)
        except InvalidTimestampError:
            # This host's clock is wrong by an hour or more; Kafka took what the records say.
            log.error("Kafka refuses this host's clock: it is wrong")  # noqa: TRY400
            dated = zip(messages, letters, strict=True)
            await self._publisher.publish(
                [message._replace(timestamp=letter.record.timestamp) for message, letter in dated]
            )


def _without_value(letter: DeadLetter) -> DeadLetter:
    size = len(letter.record.value or b"")
    detail = f"{letter.reason}: {letter.detail}; left without its {size} bytes"
    return DeadLetter(letter.record, DeadLetterReason.TOO_LARGE, detail)
