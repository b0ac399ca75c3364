"""The errors of this room. What brokers refuse is raised as aiokafka's KafkaError."""

from typing import TYPE_CHECKING

from aiokafka.errors import KafkaError

if TYPE_CHECKING:
    from engine.kafka.batch_sender import Outgoing


class StreamError(Exception):
    """Something between Kafka and a role that aiokafka does not know."""


class PartitionRestartError(StreamError):
    """A worker ended without a fault of its own: its partition begins again where it is committed.

    The consumer sees to that; nobody else has to catch it.
    """


class TransactionLostError(PartitionRestartError):
    """The transaction is over, and its producer with it."""


class MessageTooLargeError(StreamError):
    """The topic does not take messages of this size. The caller drops `messages`, which are all
    such ones of a list, or makes dead letters of them; the others are published."""

    def __init__(self, messages: "list[Outgoing]") -> None:
        size, topic = len(messages[0].value or b""), messages[0].topic
        more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
        super().__init__(f"a message of {size} bytes for {topic}{more}")
        self.messages = messages


class TooManyDeadLettersError(StreamError):
    """So many senders fail that the fault is more likely ours, or a pipeline's. Stops the process;
    the message says what to do."""


class TooManyPartitionsError(StreamError):
    """A process has more partitions than it may have producers. Stops the process; the message
    says what to do."""


class UnreadableSchemaError(StreamError):
    """The schema registry has no such schema, or none that can be read."""


class NoHttpError(StreamError):
    """What is asked over HTTP answers in something else, or not to the end."""


class AnswerTooLongError(StreamError):
    """An answer has more bytes than it may have."""


class LoginTokenError(KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """There is no token for the login at Kafka; the message says where to look. aiokafka takes it
    for a broker that does not let us in now, and tries again. `certain`: the endpoint said so
    itself, and waiting mends nothing."""

    retriable = True

    def __init__(self, message: str, *, certain: bool = False) -> None:
        super().__init__(message)
        self.certain = certain
