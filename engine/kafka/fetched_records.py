"""Makes consumers fetch records as structs, which cost less than aiokafka's own class.

aiokafka makes a data class with a dictionary for each record. That costs more than decoding the
detection in it, and fills the garbage collector's first generation. aiokafka has no option for
another class, so this module replaces a class of its fetcher (docs/decisions/0113). A version of
aiokafka without that class keeps its own records.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from aiokafka.consumer import fetcher


class FetchedRecord(msgspec.Struct, gc=False):
    """The fields of aiokafka.ConsumerRecord, with the same meaning and in the same order.

    The garbage collector ignores it: with bytes, numbers and text it cannot be in a cycle.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: tuple[tuple[str, bytes], ...]


class FetchedPartitionRecords(fetcher.PartitionRecords):  # type: ignore[misc]  # aiokafka is untyped
    """The records of one partition in the answer to a fetch. There are no deserializers."""

    def __iter__(self) -> Iterator[FetchedRecord]:
        # aiokafka's class calls a method for each record; this iterates the generator directly.
        # (A generator that has ended keeps no frame, so there is no cycle.)
        records: Iterator[FetchedRecord] = self._records_iterator
        return records

    def _consumer_record(self, partition: Any, record: Any) -> FetchedRecord:
        key, value, headers = record.key, record.value, record.headers
        return FetchedRecord(
            partition.topic,
            partition.partition,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            key,
            value,
            record.checksum,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
            tuple(headers) if headers else (),
        )


def fetch_structs() -> None:
    """Make the consumers of this process fetch FetchedRecord from now on."""
    fetcher.PartitionRecords = FetchedPartitionRecords
