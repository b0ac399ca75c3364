"""Decoding a batch. A record that cannot be decoded becomes a dead letter with a reason."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from aiokafka import ConsumerRecord

from engine.kafka.dead_letter_limit import DeadLetterLimit
from engine.kafka.dead_letters import DeadLetter, DeadLetterReason
from engine.kafka.partition_worker import Records

Message = TypeVar("Message")
Record: TypeAlias = ConsumerRecord[bytes, bytes]

# What a decoder raises for a record that no retry can mend: it is not JSON, a field is wrong, or
# its JSON is nested too deep to be read.
UNDECODABLE = (msgspec.DecodeError, ValueError, RecursionError)


class DecodedBatch(NamedTuple, Generic[Message]):
    """A decoded batch, in the order of its records. `dead_positions` are those of the dead
    letters in the batch."""

    messages: list[Message]
    dead_letters: list[DeadLetter]
    dead_positions: list[int]


def decode_records(
    records: Records, decode: Callable[[Record], Message], limit: DeadLetterLimit | None = None
) -> DecodedBatch[Message]:
    """Decode every record. `decode` raises one of UNDECODABLE for a record that becomes a dead
    letter.

    Raises TooManyDeadLettersError past the limit, before anything of the batch is published.
    """
    decoded: DecodedBatch[Message] = DecodedBatch([], [], [])
    messages, dead_letters, dead_positions = decoded
    keep = messages.append
    for record in records:
        try:
            keep(decode(record))
        except UNDECODABLE as error:
            dead_positions.append(len(messages) + len(dead_letters))
            dead_letters.append(DeadLetter(record, failure_reason(error), str(error)))
    if limit is not None:
        limit.note(records, dead_positions)
    return decoded


def failure_reason(error: Exception) -> DeadLetterReason:
    """Why a record could not be decoded."""
    if isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError):
        return DeadLetterReason.MALFORMED_JSON
    if isinstance(error, UnicodeDecodeError | RecursionError):
        return DeadLetterReason.MALFORMED_JSON
    return DeadLetterReason.INVALID_FIELD
