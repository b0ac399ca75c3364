"""A server that cancels long statements: batches become smaller until they succeed."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from catalog.models import DetectionTrace
from engine.recorder.ledger import LedgerTransaction
from tests.contract.ledgers import next_offsets, open_scene
from tests.integration.recorder.readers import DETECTIONS
from tests.integration.recorder.test_recorder import Rig

FEW = 10


@pytest.fixture
async def rig(database_url: str) -> AsyncIterator[Rig]:
    async with open_scene(database_url) as scene:
        yield Rig(scene)


class SlowTransaction:
    """A ledger that writes only few rows in time."""

    def __init__(
        self, transaction: LedgerTransaction, error: Exception, batches: list[int]
    ) -> None:
        self._entry = transaction
        self._error = error
        self._batches = batches

    async def add_detections(self, rows: Sequence[Any]) -> None:
        if len(rows) > FEW:
            raise self._error
        self._batches.append(len(rows))
        await self._entry.add_detections(rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._entry, name)


class SlowLedger:
    """Gives such entries, until it is set to be quick."""

    def __init__(self, ledger: Any, error: Exception) -> None:
        self._ledger = ledger
        self._error = error
        self.batches: list[int] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self._ledger.transaction() as transaction:
            yield SlowTransaction(transaction, self._error, self.batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


@pytest.mark.parametrize(
    "error", [TimeoutError(), asyncpg.exceptions.QueryCanceledError("statement timeout")]
)
async def test_a_batch_is_halved_until_it_is_written(rig: Rig, error: Exception) -> None:
    ledger: Any = SlowLedger(rig.scene.ledger, error)
    recorder = rig.recorder(DETECTIONS, ledger=ledger)
    await recorder.handle(rig.detections(range(40)))
    assert await rig.counters() == (40, 0)
    assert await rig.count(DetectionTrace) == 40
    assert sum(ledger.batches) == 40
    assert max(ledger.batches) <= FEW
    assert await next_offsets(rig.scene.ledger, DETECTIONS) == {0: 40}


async def test_it_grows_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger: Any = SlowLedger(rig.scene.ledger, TimeoutError())
    recorder = rig.recorder(DETECTIONS, ledger=ledger)
    await recorder.handle(rig.detections(range(20)))
    monkeypatch.setattr(f"{__name__}.FEW", 1000)
    ledger.batches.clear()
    for begin in range(20, 320, 100):
        await recorder.handle(rig.detections(range(begin, begin + 100)))
    assert ledger.batches[-1] > 50
    assert await rig.counters() == (320, 0)
