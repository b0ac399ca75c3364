"""Decodes batches. A record that cannot be decoded becomes a dead letter with a reason."""

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterable
from operator import attrgetter
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from aiokafka import ConsumerRecord

from engine.kafka.dead_letter_limit import DeadLetterLimit
from engine.kafka.dead_letters import DeadLetter, DeadLetterReason
from engine.kafka.partition_worker import Records

Message = TypeVar("Message")
Record: TypeAlias = ConsumerRecord[bytes, bytes]

# The errors of a decoder for an invalid record: it is not JSON, a field is wrong, or its JSON is
# nested too deep to be read.
UNDECODABLE = (msgspec.DecodeError, ValueError, RecursionError)

AT_ONCE = 64  # records of many messages each

_OFFSET = attrgetter("offset")


class DecodedBatch(NamedTuple, Generic[Message]):
    """A decoded batch, in the order of its records.

    `dead_positions` are the positions of the dead letters' records in the batch.
    """

    messages: list[Message]
    dead_letters: list[DeadLetter]
    dead_positions: list[int]


def decode_records(
    records: Records,
    decode: Callable[[Record], Message],
    limit: DeadLetterLimit | None = None,
    *,
    among: Records | None = None,
) -> DecodedBatch[Message]:
    """Decode every record. A record for which `decode` raises UNDECODABLE becomes a dead letter.

    Raises TooManyDeadLettersError over the limit, before anything of the batch is published.
    `among` is the batch of the partition that the records belong to, if it has others: these are
    good, which matters to the limit.
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
    if limit is None:
        return decoded
    if among is None:
        limit.note(records, dead_positions)
    else:
        offsets = [letter.record.offset for letter in dead_letters]
        limit.note(among, [bisect_left(among, offset, key=_OFFSET) for offset in offsets])
    return decoded


async def decode_each(
    records: Records,
    decode: Callable[[Record], Iterable[Message]],
    limit: DeadLetterLimit | None = None,
    *,
    prepare: Callable[[Records], Awaitable[None]],
) -> DecodedBatch[Message]:
    """Decode records that each hold any number of messages.

    A record is decoded whole or becomes a dead letter, so that a replay counts no message twice.
    `prepare` is awaited for each AT_ONCE records; between them other tasks have their turn.
    """
    decoded: DecodedBatch[Message] = DecodedBatch([], [], [])
    messages, dead_letters, dead_positions = decoded
    for position, record in enumerate(records):
        if position % AT_ONCE == 0:
            await asyncio.sleep(0)
            await prepare(records[position : position + AT_ONCE])
        try:
            messages += list(decode(record))
        except UNDECODABLE as error:
            dead_positions.append(position)
            dead_letters.append(DeadLetter(record, failure_reason(error), str(error)))
    if limit is not None:
        limit.note(records, dead_positions)
    return decoded


def failure_reason(error: Exception) -> DeadLetterReason:
    """The reason of the dead letter for an error of a decoder."""
    if isinstance(error, msgspec.DecodeError) and not isinstance(error, msgspec.ValidationError):
        return DeadLetterReason.MALFORMED_JSON
    if isinstance(error, UnicodeDecodeError | RecursionError):
        return DeadLetterReason.MALFORMED_JSON
    return DeadLetterReason.INVALID_FIELD
