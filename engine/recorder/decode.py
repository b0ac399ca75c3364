"""Decoding what only the recorder reads. A bad record is a dead letter with a reason."""

from collections.abc import Callable
from typing import TypeAlias, TypeVar

import msgspec
from aiokafka import ConsumerRecord

from engine.kafka.dead_letter_limit import DeadLetterLimit
from engine.kafka.dead_letters import DeadLetter
from engine.kafka.detections import failure_reason
from engine.kafka.partition_worker import Records

Message = TypeVar("Message")
Record: TypeAlias = ConsumerRecord[bytes, bytes]


def decode_all(
    records: Records, decode: Callable[[Record], Message], limit: DeadLetterLimit
) -> tuple[list[tuple[Record, Message]], list[DeadLetter]]:
    """The decoded messages, with their records, and the dead letters.

    Raises TooManyDeadLettersError past the limit.
    """
    messages: list[tuple[Record, Message]] = []
    dead: list[DeadLetter] = []
    positions = []
    for position, record in enumerate(records):
        try:
            messages.append((record, decode(record)))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            dead.append(DeadLetter(record, failure_reason(error), str(error)))
            positions.append(position)
    limit.note(records, positions)
    return messages, dead
