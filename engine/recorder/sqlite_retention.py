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
from engine.recorder.ledger import statements
from engine.recorder.retention import RetentionWindow

_ROWS = 10_000
_TRACES = (DetectionTrace, AuthenticationTrace)


class SqliteRetentionStore:
    """Implements RetentionStore."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._reading = engine
        self._engine = with_write_lock(engine)

    async def now(self) -> datetime:
        async with self._reading.connect() as connection:
            text = (await connection.exec_driver_sql(statements("sqlite")["now"])).scalar_one()
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    async def create_days(self, _first: date, _last: date) -> int:
        return 0  # SQLite has no partitions

    async def delete_outside(self, window: RetentionWindow) -> int:
        deleted = 0
        for trace in _TRACES:
            is_outside = or_(trace.create_on < window.since, trace.create_on >= window.until)
            old = select(trace.id).where(is_outside).limit(_ROWS)
            while count := await self._run(delete(trace).where(trace.id.in_(old))):
                deleted += count
        for statement in (
            delete(Reception).where(Reception.recorded_on < window.since),
            delete(Presence).where(Presence.recorded_on < window.since),
            delete(StatisticDevice).where(StatisticDevice.day < window.day),
        ):
            deleted += await self._run(statement)
        return deleted

    async def _run(self, statement: object) -> int:
        async with self._engine.begin() as connection:
            return int((await connection.execute(statement)).rowcount)  # type: ignore[call-overload]
