"""What a fetch makes of a record: a struct, without the cost that aiokafka's own class has.

aiokafka makes a data class of each record, with a dictionary of its own, which costs more than to
decode the detection in it, and fills the garbage collector's first generation. It has no place to
say what to make instead, so this module puts its own class in place of the fetcher's
(docs/decisions/0113). A version of aiokafka that lacks them goes on with its own class.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from aiokafka.consumer import fetcher


class FetchedRecord(msgspec.Struct, gc=False):
    """The fields of aiokafka.ConsumerRecord, with the same meaning and in the same order.

    Not seen by the garbage collector: it holds bytes, numbers and text, so no cycle.
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
    """The records of one partition's answer to a fetch. No deserializers: this project has none."""

    def __iter__(self) -> Iterator[FetchedRecord]:
        # aiokafka's own asks the generator by way of a method, once a record. (A generator that has
        # ended holds its frame no more, so that no cycle is left.)
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
    """From now on consumers of this process fetch FetchedRecord."""
    fetcher.PartitionRecords = FetchedPartitionRecords
