"""Decoding what only the recorder reads. A bad record is a dead letter with a reason."""

from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

import msgspec
from aiokafka import ConsumerRecord

from engine.decode import failure_reason
from engine.kafka.dead_letters import DeadLetter, DeadLetterLimit
from engine.kafka.worker import Records

Message = TypeVar("Message")
Record: TypeAlias = ConsumerRecord[bytes, bytes]


class LimitedDecoder(Generic[Message]):
    """Decodes the records of one partition with `decode`, within `limit`.

    While SQL is away a batch is read again and again: the limit counts each record once.
    """

    def __init__(self, decode: Callable[[Record], Message], limit: DeadLetterLimit) -> None:
        self._decode = decode
        self._limit = limit
        self._counted_to = 0

    def decode_all(self, records: Records) -> tuple[list[tuple[Record, Message]], list[DeadLetter]]:
        """The decoded messages, with their records, and the dead letters.

        Raises TooManyDeadLettersError past the limit.
        """
        messages: list[tuple[Record, Message]] = []
        dead: list[DeadLetter] = []
        for record in records:
            try:
                messages.append((record, self._decode(record)))
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                dead.append(DeadLetter(record, failure_reason(error), str(error)))
        self._count(records, {letter.record.offset for letter in dead})
        return messages, dead

    def _count(self, records: Records, dead: set[int]) -> None:
        new = [record.offset for record in records if record.offset >= self._counted_to]
        if new:
            self._counted_to = new[-1] + 1
            self._limit.note(len(new), [n for n, offset in enumerate(new) if offset in dead])
