"""How many records a recorder that is behind writes in one transaction."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from aiokafka import TopicPartition

from engine.kafka.partition_worker import Records
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.recorder.ledger import Ledger
from engine.recorder.pipeline import PartitionRecorder, Recorder
from engine.wiring.recorder import records_at_once
from tests.unit.engine.records import record

TOPIC, DEADLINE = "proximity.detections", 30.0


@pytest.mark.parametrize(
    ("batch", "in_flight", "at_once"),
    [(5000, 20_000, 20_000), (5000, 100_000, 20_000), (5000, 8000, 8000), (5000, 100, 5000)],
)
def test_a_recorder_writes_four_batches_if_so_many_may_be_in_flight(
    batch: int, in_flight: int, at_once: int
) -> None:
    settings = Settings(batch_records=batch, in_flight_records=in_flight)
    assert records_at_once(settings) == at_once


class SlowLedger:
    """SQL that takes `seconds` for a record, by a clock of its own; nothing else is kept."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.now, self.next_offset = 0.0, 0
        self.written, self.timeouts = list[int](), 0

    async def positions(self, _topic: str) -> Mapping[int, Any]:
        return {}

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["SlowLedger"]:
        yield self

    async def advance_offset(self, _topic: str, _part: int, _known: int | None, end: int) -> bool:
        records = end - self.next_offset
        takes = records * self.seconds
        self.now += min(takes, DEADLINE)
        if takes > DEADLINE:
            self.timeouts += 1
            raise TimeoutError
        self.written.append(records)
        self.next_offset = end
        return True


class CountsNothing:
    """A reader whose records count nothing."""

    async def read(self, records: Records) -> Records:
        return records

    async def count(self, _transaction: Any, _batch: Records) -> "CountsNothing":
        return self

    def device_updates(self) -> dict[str, Any]:
        return {}


def partition_over(ledger: SlowLedger) -> PartitionRecorder:
    """A recorder that writes at most 64 records at once."""
    recorder = Recorder(
        ledger=cast(Ledger, ledger),
        readers={TOPIC: cast(Any, CountsNothing())},
        metrics=Metrics(),
        deadline=DEADLINE,
        largest_pieces={TOPIC: 64},
        clock=lambda: ledger.now,
    )
    return recorder.for_partition(TopicPartition(TOPIC, 3))


def records(offsets: range) -> Records:
    return [record(b"{}", offset=offset) for offset in offsets]


async def test_a_transaction_that_is_too_slow_is_halved_and_stays_so() -> None:
    """Otherwise every second one would take its whole deadline, several times, for nothing."""
    ledger = SlowLedger(DEADLINE / 40)
    await partition_over(ledger).handle(records(range(320)))
    assert ledger.written == [32] * 10
    assert ledger.timeouts == 3, "the tries of the first one"


async def test_transactions_grow_again_once_they_are_quick() -> None:
    ledger = SlowLedger(DEADLINE / 10)
    partition = partition_over(ledger)
    await partition.handle(records(range(16)))
    assert ledger.written == [8, 8]
    ledger.seconds = DEADLINE / 1000
    await partition.handle(records(range(16, 200)))
    assert ledger.written[2:] == [8, 16, 32, 64, 64]
