"""The errors of this package. Errors of brokers are raised as aiokafka's KafkaError."""

from typing import TYPE_CHECKING

from aiokafka.errors import KafkaError

if TYPE_CHECKING:
    from engine.kafka.producer import Outgoing


class StreamError(Exception):
    """An error of the layer between aiokafka and the roles."""


class PartitionRestartError(StreamError):
    """A worker must stop, and its partition must be read again from the committed offset.

    The consumer catches this error and restarts the partition.
    """


class TransactionLostError(PartitionRestartError):
    """The transaction is lost, and its producer cannot be used any more."""


class MessageTooLargeError(StreamError):
    """The topic refuses messages of this size.

    `messages` are all refused messages of a list; the others are published. The caller drops the
    refused ones or publishes dead letters for them.
    """

    def __init__(self, messages: "list[Outgoing]") -> None:
        size, topic = len(messages[0].value or b""), messages[0].topic
        more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
        super().__init__(f"a message of {size} bytes for {topic}{more}")
        self.messages = messages


class TooManyDeadLettersError(StreamError):
    """The records of too many senders cannot be decoded, so a deployment is probably wrong.

    Stops the process; the message says what to do.
    """


class TooManyPartitionsError(StreamError):
    """A process has more partitions than it may have transactional producers.

    Stops the process; the message says what to do.
    """


class UnreadableSchemaError(StreamError):
    """The schema registry lacks a schema, or returns one that cannot be used."""


class LoginTokenError(KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """There is no token for the login at Kafka; the message names the settings to check.

    It is a KafkaError, so aiokafka retries as if a broker had refused the login for now.
    """

    retriable = True
