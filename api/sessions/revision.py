"""Notices within a second that any process has changed the access of an account."""

import asyncio
from collections.abc import Callable

import structlog
from asyncpg import InterfaceError, PostgresError
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from catalog.database import Database
from catalog.models import AccessState

_log = structlog.get_logger(__name__)


class AccessRevision:
    """The count of changes (catalog.access), read every `poll` seconds.

    `known` is the count while the last successful read began less than `trusted` seconds ago.
    Sessions cached under that count are valid. Otherwise (for example while SQL is down) it is
    None, and no cached session is valid.
    """

    def __init__(
        self,
        *,
        database: Database,
        clock: Callable[[], float],
        poll: float = 0.3,
        trusted: float = 0.9,
    ) -> None:
        self._database = database
        self._clock = clock
        self._poll = poll
        self._trusted = trusted
        self._revision: int | None = None
        self._seen = 0.0

    def known(self) -> int | None:
        """The count, or None if it is not known."""
        fresh = self._clock() - self._seen < self._trusted
        return self._revision if fresh else None

    async def look(self) -> None:
        """Read the count. Raises the errors of SQL, or TimeoutError."""
        begun = self._clock()
        async with asyncio.timeout(self._trusted), self._database.autocommit() as session:
            self._revision = await session.scalar(select(AccessState.revision))
        self._seen = begun

    async def run(self) -> None:
        """Read the count until cancelled. An outage of SQL is logged once, when it begins."""
        failing = False
        while True:
            try:
                await self.look()
                failing = False
            except (SQLAlchemyError, PostgresError, InterfaceError, OSError, TimeoutError) as error:
                if not failing:
                    _log.warning("sessions are not cached: SQL does not answer", error=repr(error))
                failing = True
            await asyncio.sleep(self._poll)
