"""Retention goes on as long as its role, whatever errors SQL raises."""

import asyncio
from datetime import UTC, date, datetime
from typing import Any

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError, ProgrammingError

from engine.recorder import retention
from engine.recorder.retention import Retention, RetentionWindow

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ERRORS = [
    DBAPIError("", None, asyncpg.exceptions.QueryCanceledError("")),
    asyncpg.exceptions.PostgresIOError(""),
    ProgrammingError("", None, asyncpg.exceptions.InsufficientPrivilegeError("")),
    KeyError("a mistake of ours"),
    TimeoutError(),
]


class FailingStore:
    """Fails at each step in turn, then does its work."""

    def __init__(self) -> None:
        self.failures = [
            (step, error) for error in ERRORS for step in ("now", "days", "delete_outside")
        ]
        self.kept = asyncio.Event()

    async def now(self) -> datetime:
        self._may_fail("now")
        return NOW

    async def create_days(self, _first: date, _last: date) -> int:
        self._may_fail("days")
        return 0

    async def delete_outside(self, _kept: RetentionWindow) -> int:
        self._may_fail("delete_outside")
        self.kept.set()
        return 0

    def _may_fail(self, step: str) -> None:
        if self.failures and self.failures[0][0] == step:
            raise self.failures.pop(0)[1]


async def test_no_error_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("_RETRY_PAUSE", "_FAULT_PAUSE"):
        monkeypatch.setattr(retention, pause, 0.0)
    store: Any = FailingStore()
    work = Retention(store, days=30, max_age=300.0, clock=lambda: NOW, clocks={})
    task = asyncio.create_task(work.run())
    try:
        # Each failure logs a traceback, which a busy machine draws slowly.
        async with asyncio.timeout(60):
            await store.kept.wait()
        assert not task.done()
        assert store.failures == []
    finally:
        task.cancel()
