"""Retention on SQLite: rows are deleted by their age, in pieces."""

from datetime import date, datetime

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncEngine

from catalog.database import writing
from catalog.models import (
    AuthenticationTrace,
    DetectionTrace,
    Presence,
    Reception,
    StatisticDevice,
)

_ROWS = 10_000
_TRACES = (DetectionTrace, AuthenticationTrace)


class SqliteStore:
    """Implements retention.Store."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = writing(engine)

    async def make_days(self, _first: date, _last: date) -> int:
        """SQLite has no partitions: 0."""
        return 0

    async def forget_before(self, limit: datetime) -> int:
        """Delete; how many rows."""
        forgotten = 0
        for trace in _TRACES:
            old = select(trace.id).where(trace.create_on < limit).limit(_ROWS)
            while count := await self._run(delete(trace).where(trace.id.in_(old))):
                forgotten += count
        for statement in (
            delete(Reception).where(Reception.create_on < limit),
            delete(Presence).where(Presence.create_on < limit),
            delete(StatisticDevice).where(StatisticDevice.day < limit.date()),
        ):
            forgotten += await self._run(statement)
        return forgotten

    async def _run(self, statement: object) -> int:
        async with self._engine.begin() as connection:
            return int((await connection.execute(statement)).rowcount)  # type: ignore[call-overload]
