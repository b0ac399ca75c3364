"""The management interface as a process, on SQLite and a real Redis, with short times."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from catalog.database import Database, open_database
from engine.process.http_limits import HttpLimits
from engine.process.http_server import BoundedServer, listen
from tests.acceptance.api.process import ApiProcess, api_rig, make_account
from tests.acceptance.rig import Rig
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually

SHORT = {
    "API_BODY_TIMEOUT": "2",
    "API_ANSWER_TIMEOUT": "3",
    "API_LIST_TIMEOUT": "6",
    "API_HEAD_TIMEOUT": "2",
    "API_IDLE_TIMEOUT": "3",
    "API_CONNECTIONS": "50",
}


@pytest.fixture
async def database(sqlite_url: str) -> AsyncIterator[Database]:
    """A migrated database with the account."""
    await make_schema(sqlite_url)
    opened = open_database(sqlite_url)
    await make_account(opened)
    yield opened
    await opened.close()


@pytest.fixture
def processes(sqlite_url: str, redis_url: str, tmp_path: Path) -> Iterator[Rig]:
    """Starts processes, and stops those that still run at the end."""
    rig = api_rig(tmp_path, sqlite_url, redis_url)
    yield rig
    rig.close()


@pytest.fixture
async def served(database: Database, processes: Rig) -> ApiProcess:
    """A process that is ready."""
    return await ApiProcess(processes, **SHORT).until_ready()


Serve = Callable[..., Any]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Serves an application in this process: a context that gives the port."""

    @asynccontextmanager
    async def serving(app: Any, **limits: Any) -> AsyncIterator[int]:
        listener = listen("127.0.0.1", 0, setting="none")
        server = BoundedServer(app, HttpLimits(**limits))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        await eventually(lambda: server.started)
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            await task

    async with AsyncExitStack():
        yield serving
