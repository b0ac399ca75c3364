"""`proximity api` on a database of its own, with a session; for measurements."""

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import select

from api.sessions.check import token_hash
from benchmarks.interface.load import UnexpectedAnswerError, fetch, request_of
from benchmarks.machine import first_processor
from catalog.accounts import NewAccount, create_account
from catalog.database import open_database
from catalog.fields.company import ALL_PERMISSIONS
from catalog.migrate import migrate
from catalog.models import Account, Session, Venue
from engine.cli.embedded.child import free_port
from tests.servers.waiting import eventually

_END_SECONDS = 40.0
_EMAIL, _PASSWORD = "owner@example.org", "only for this run"


class Served(NamedTuple):
    """A process that answers on `port`; `headers` are those of a session."""

    pid: int
    port: int
    headers: dict[str, str]


@contextlib.asynccontextmanager
async def product(url: str, redis_url: str) -> AsyncIterator[Served]:
    """`proximity api` on a catalog of one venue."""
    await _make_catalog(url)
    port = free_port()
    environment = os.environ | {
        "PROXIMITY_DATABASE_URL": url,
        "PROXIMITY_REDIS_URL": redis_url,
        "PROXIMITY_API_PORT": str(port),
        "PROXIMITY_API_METRICS_PORT": "0",
        "PROXIMITY_LOG_LEVEL": "error",
    }
    with process([sys.executable, "-m", "engine.cli", "api"], environment) as pid:
        health = request_of(port, "/healthz", {})
        await eventually(lambda: answers(port, health), what="the interface answers")
        yield Served(pid, port, await _session(url))


async def _make_catalog(url: str) -> None:
    await migrate(url)
    opened = open_database(url)
    new = NewAccount(
        company="Harbour Mall", email=_EMAIL, password=_PASSWORD, permission=ALL_PERMISSIONS
    )
    await create_account(opened, new, create_company=True, now=datetime.now(UTC))
    async with opened.write.begin() as session:
        session.add(Venue(company_id=1, name="Harbour", address="1 Quay", active=True))
    await opened.close()


async def _session(url: str) -> dict[str, str]:
    """The headers of a new session."""
    token, now = secrets.token_urlsafe(32), datetime.now(UTC)
    opened = open_database(url)
    async with opened.write.begin() as session:
        account = (await session.scalars(select(Account))).one()
        session.add(
            Session(
                account_id=account.id,
                token_hash=token_hash(token),
                create_on=now,
                valid=now + timedelta(hours=1),
            )
        )
    await opened.close()
    return {"x-service-key": _EMAIL, "x-service-token": token}


@contextlib.contextmanager
def process(command: list[str], environment: dict[str, str], given: bytes = b"") -> Iterator[int]:
    """Run a process on the first processor until the context ends; gives its pid."""
    pinned = ["taskset", "-c", str(first_processor()), *command]
    process = subprocess.Popen(pinned, env=environment, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(given)
    process.stdin.close()
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(_END_SECONDS)


async def answers(port: int, request: bytes) -> bool:
    """Whether the answer is 200."""
    try:
        await fetch(port, request)
    except (OSError, UnexpectedAnswerError):
        return False
    return True
