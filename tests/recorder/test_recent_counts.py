"""The counts of the last minutes, gathered by the recorder."""

import asyncio
from collections import Counter
from collections.abc import Mapping

import pytest

from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics
from engine.recorder.retention import RecentCounts
from engine.redis.figures import BeaconMinute, RecentDetectionStore

HERE, THERE = BeaconMinute(1, 2, 29_000_000), BeaconMinute(1, 3, 29_000_000)


class Store(RecentDetectionStore):
    def __init__(self, error: Exception | None = None) -> None:
        self.written: Counter[BeaconMinute] = Counter()
        self._error = error

    async def add(self, counts: Mapping[BeaconMinute, int]) -> None:
        if self._error is not None:
            raise self._error
        self.written.update(counts)


async def running(store: Store, metrics: Metrics) -> None:
    counts = RecentCounts(store=store, metrics=metrics, pause=3600)
    task = asyncio.create_task(counts.run())
    await asyncio.sleep(0)
    counts.note({HERE: 2, THERE: 1})
    counts.note({HERE: 3})
    await cancel([task])


async def test_an_orderly_stop_writes_what_was_gathered() -> None:
    store = Store()
    await running(store, Metrics())
    assert store.written == {HERE: 5, THERE: 1}


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionError()])
async def test_a_redis_that_is_away_delays_no_stop(error: Exception) -> None:
    metrics = Metrics()
    await running(Store(error), metrics)
    assert metrics.registry.get_sample_value("proximity_redis_errors_total") == 1
