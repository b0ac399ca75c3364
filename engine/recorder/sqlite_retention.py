"""Retention on SQLite: rows are deleted by their age, in pieces."""

from datetime import UTC, date, datetime

from sqlalchemy import delete, or_, select
from sqlalchemy.ext.asyncio import AsyncEngine

from catalog.database import with_write_lock
from catalog.models import (
    AuthenticationTrace,
    DetectionTrace,
    Presence,
    Reception,
    StatisticDevice,
)
from engine.recorder.retention import Kept
from engine.recorder.statements import statements

_ROWS = 10_000
_TRACES = (DetectionTrace, AuthenticationTrace)


class SqliteStore:
    """Implements retention.Store."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._reading = engine
        self._engine = with_write_lock(engine)

    async def now(self) -> datetime:
        """The present on SQLite's clock, which is that of this host."""
        async with self._reading.connect() as connection:
            text = (await connection.exec_driver_sql(statements("sqlite")["now"])).scalar_one()
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    async def make_days(self, _first: date, _last: date) -> int:
        """SQLite has no partitions: 0."""
        return 0

    async def forget(self, kept: Kept) -> int:
        """Delete; how many rows."""
        forgotten = 0
        for trace in _TRACES:
            has_gone = or_(trace.create_on < kept.since, trace.create_on >= kept.until)
            old = select(trace.id).where(has_gone).limit(_ROWS)
            while count := await self._run(delete(trace).where(trace.id.in_(old))):
                forgotten += count
        for statement in (
            delete(Reception).where(Reception.recorded_on < kept.since),
            delete(Presence).where(Presence.recorded_on < kept.since),
            delete(StatisticDevice).where(StatisticDevice.day < kept.day),
        ):
            forgotten += await self._run(statement)
        return forgotten

    async def _run(self, statement: object) -> int:
        async with self._engine.begin() as connection:
            return int((await connection.execute(statement)).rowcount)  # type: ignore[call-overload]
