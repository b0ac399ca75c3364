"""The notifications that a consumer could read so far, counted."""

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

_MOST = 5000
_POLL_SECONDS = 0.02


class Arrivals:
    """Counts the notifications since `begins`.

    End offsets would not do: those of a transaction count as well when it is aborted, and so does
    the mark of its end. The broker aborts that of a killed process after its timeout, long before
    another process goes on.
    """

    def __init__(self, consumer: Consumer, topic: str, begins: dict[int, int]) -> None:
        """`consumer` reads committed, and reports the end of a partition."""
        self._consumer = consumer
        self._consumer.assign([TopicPartition(topic, *begin) for begin in begins.items()])
        self._count = 0

    def count(self) -> int:
        """How many came until now; waits 20 ms at most.

        Raises SystemExit if they cannot be read.
        """
        self._count += sum(map(is_notification, self._consumer.consume(_MOST, _POLL_SECONDS)))
        return self._count


def is_notification(message: Message) -> bool:
    """False at the end of a partition. Raises SystemExit if the message is an error."""
    error = message.error()
    if error is None:
        return True
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
        return False
    raise SystemExit(f"the notifications could not be read: {error}")
