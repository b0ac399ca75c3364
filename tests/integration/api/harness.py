"""The application on real stores, called as its users call it."""

import asyncio
import functools
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import httpx
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from api.app import build_app
from api.metrics import ApiMetrics
from api.sessions.check import token_hash
from api.sessions.revision import AccessRevision
from api.sessions.sign_in import Passwords
from catalog.database import Database
from catalog.fields.company import ALL_PERMISSIONS
from catalog.index.drainer import OutboxDrainer
from catalog.models import Account, Company, Session
from connectors.call import client_context
from engine.process.settings import Settings
from engine.wiring.api import build_services
from engine.wiring.stores import Stores, open_stores

Headers = dict[str, str]
_client_context = functools.cache(client_context)
PASSWORD = "correct horse"


class Harness:
    """An application in this process, its stores, and a client of it."""

    def __init__(
        self,
        app: FastAPI,
        stores: Stores,
        client: httpx.AsyncClient,
        revision: AccessRevision,
    ) -> None:
        self.app = app
        self.stores = stores
        self.client = client
        self.revision = revision

    @property
    def database(self) -> Database:
        return self.stores.database

    async def call(
        self, method: str, path: str, headers: Headers | None = None, json: Any = None
    ) -> httpx.Response:
        """A request below /v2."""
        return await self.client.request(method, f"/v2{path}", headers=headers, json=json)

    async def account(self, company: Company | None = None, /, **permission: int) -> Headers:
        """Headers of a new account with a session; levels that are not given are 2."""
        email = f"{secrets.token_hex(4)}@example.org"
        token = secrets.token_urlsafe(16)
        now = datetime.now(UTC)
        async with self.database.write.begin() as session:
            if company is None:
                company = Company(name=f"company of {email}", create_on=now)
            owner = await session.merge(company)
            account = Account(
                company=owner,
                email=email,
                password_hash="-",
                permission=ALL_PERMISSIONS | permission,
                create_on=now,
            )
            session.add(account)
            await session.flush()
            session.add(
                Session(
                    account_id=account.id,
                    token_hash=token_hash(token),
                    create_on=now,
                    valid=now + timedelta(hours=1),
                )
            )
        return {"x-service-key": email, "x-service-token": token}


@asynccontextmanager
async def harness(
    settings: Settings, passwords: Passwords, *, with_console: bool = False
) -> AsyncIterator[Harness]:
    """An application with these settings, on a migrated database."""
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_stores(settings))
        drainer = OutboxDrainer(database=stores.database, store=stores.index_store, clock=_never)
        revision = AccessRevision(database=stores.database, clock=_never)
        await look(revision)

        async def ready() -> dict[str, bool]:
            return {"database": True}

        # The public authorities are read in 30 ms, and no test changes them.
        with patch("engine.wiring.connector.client_context", _client_context):
            services = build_services(settings, stores, drainer, revision, passwords)
        app = build_app(
            services=services,
            metrics=ApiMetrics(CollectorRegistry()),
            version="0",
            ready=ready,
            with_console=with_console,
        )
        transport = httpx.ASGITransport(app)
        client = httpx.AsyncClient(transport=transport, base_url="http://api")
        yield Harness(app, stores, await stack.enter_async_context(client), revision)


async def look(revision: AccessRevision) -> None:
    """Read the count of changes. On a busy machine its own deadline may pass before SQL answers."""
    async with asyncio.timeout(60):
        while True:
            with suppress(TimeoutError):
                return await revision.look()


def _never() -> float:
    """A clock that stands: what the application saw of the access revision holds."""
    return 0.0
