"""A fault of retention never stops its role: it is logged, and retention tries again."""

import asyncio
from datetime import UTC, date, datetime

import pytest
from sqlalchemy.exc import ProgrammingError

from engine.process.cancelling import cancel
from engine.recorder import retention
from engine.recorder.retention import Retention, RetentionWindow

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


class FailingStore:
    """Fails with each of the errors once, and then works."""

    def __init__(self, errors: list[Exception]) -> None:
        self.errors = errors
        self.done = asyncio.Event()

    async def now(self) -> datetime:
        if self.errors:
            raise self.errors.pop()
        return NOW

    async def create_days(self, _first: date, _last: date) -> int:
        return 0

    async def delete_outside(self, _window: RetentionWindow) -> int:
        self.done.set()
        return 0


async def test_no_fault_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("_RETRY_PAUSE", "_FAULT_PAUSE"):
        monkeypatch.setattr(retention, pause, 0.0)
    refused = ProgrammingError("DROP TABLE", {}, Exception("must be owner of table"))
    store = FailingStore([OSError("away"), TimeoutError(), refused, RuntimeError("a defect")])
    one = Retention(store, days=30, max_age=600.0, clock=lambda: NOW, clocks={})
    task = asyncio.create_task(one.run())
    try:
        async with asyncio.timeout(30):
            await store.done.wait()
        assert not task.done()
    finally:
        await cancel([task])
