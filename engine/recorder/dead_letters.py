"""Records that the recorder alone reads, and cannot use: they become dead letters."""

import time
from collections.abc import Callable

from engine.kafka.dead_letters import DeadLetter, DeadLetterReason
from engine.kafka.errors import MessageTooLargeError
from engine.kafka.publisher import Publisher
from engine.process.metrics import Metrics


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
            await self._publisher.publish(list(messages.values()))
        except MessageTooLargeError as error:
            refused = {id(message) for message in error.messages}
            letters = [
                _without_value(letter) if id(messages[id(letter)]) in refused else letter
                for letter in letters
            ]
            again = [letter for letter in letters if id(letter) not in messages]
            empty = [each.outgoing(self._topic, now)._replace(value=None) for each in again]
            await self._publisher.publish(empty)
        for letter in letters:
            self._metrics.dead_letters.labels(letter.record.topic, letter.reason).inc()


def _without_value(letter: DeadLetter) -> DeadLetter:
    size = len(letter.record.value or b"")
    detail = f"{letter.reason}: {letter.detail}; left without its {size} bytes"
    return DeadLetter(letter.record, DeadLetterReason.TOO_LARGE, detail)
