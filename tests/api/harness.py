"""The application on real stores, called as its users call it."""

import functools
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, NamedTuple
from unittest.mock import patch

import httpx
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from sqlalchemy import event, select

from api.app import build_app
from api.campaigns import CAMPAIGNS
from api.middleware import ApiMetrics
from api.sessions import token_hash
from api.venues import BEACONS, GEOFENCES, VENUES
from catalog.database import Database
from catalog.inputs import AREAS, WRITE
from catalog.models import Account, Base, Company, Session
from connectors.client import client_context
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings
from engine.wiring.api import build_services
from engine.wiring.parts import Stores, open_stores
from tests.servers.schema import make_schema

Headers = dict[str, str]
Body = dict[str, Any]
_client_context = functools.cache(client_context)
PASSWORD = "correct horse"


@dataclass
class Harness:
    """An application in this process, its stores, and a client of it."""

    app: FastAPI
    stores: Stores
    client: httpx.AsyncClient

    @property
    def database(self) -> Database:
        return self.stores.database

    async def call(
        self, method: str, path: str, headers: Headers | None = None, json: Any = None
    ) -> httpx.Response:
        """Send a request below /v2."""
        return await self.client.request(method, f"/v2{path}", headers=headers, json=json)

    async def made(self, path: str, headers: Headers, body: Any) -> dict[str, Any]:
        """The record of a successful POST."""
        answer = await self.call("POST", path, headers, body)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    async def faults(
        self, method: str, path: str, headers: Headers, json: Any, status: int = 400
    ) -> dict[str, str]:
        """The faults of a refused request by field."""
        answer = await self.call(method, path, headers, json)
        return dict(error_body(answer, status).get("fields", {}))

    async def read(self, path: str, headers: Headers) -> Any:
        """The body of a successful GET."""
        answer = await self.call("GET", path, headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def company_of(self, headers: Headers) -> int:
        """The company of an account."""
        query = select(Account.company_id).where(Account.email == headers["x-service-key"])
        async with self.database.read() as session:
            return (await session.execute(query)).scalar_one()

    async def add(self, *records: Base) -> None:
        """Store records as other processes do."""
        async with self.database.write.begin() as session:
            session.add_all(records)

    async def colleague(self, headers: Headers, /, **permission: int) -> Headers:
        """Headers of another account of the company, as `account`."""
        async with self.database.read() as session:
            company = await session.get_one(Company, await self.company_of(headers))
        return await self.account(company, **permission)

    async def account(self, company: Company | None = None, /, **permission: int) -> Headers:
        """Headers of a new account with a session; levels that are not given are 2."""
        email, token = f"{secrets.token_hex(4)}@example.org", secrets.token_urlsafe(16)
        now = datetime.now(UTC)
        async with self.database.write.begin() as session:
            if company is None:
                company = Company(name=f"company of {email}", create_on=now)
            levels = dict.fromkeys(AREAS, WRITE) | permission
            account = Account(email=email, password_hash="-", permission=levels, create_on=now)
            account.company = await session.merge(company)
            session.add(account)
            await session.flush()
            of = {"create_on": now, "valid": now + timedelta(hours=1)}
            session.add(Session(account_id=account.id, token_hash=token_hash(token), **of))
        return {"x-service-key": email, "x-service-token": token}


def app_settings(database_url: str, redis_url: str, **more: Any) -> Settings:
    """Settings on these stores; connectors may call this machine, and there is no Kafka."""
    return load_settings(
        database_url=database_url,
        redis_url=redis_url,
        secret_key="a passphrase of the test",
        connector_allow_networks="127.0.0.0/8",
        kafka_bootstrap_servers="127.0.0.1:9",
        **more,
    )


@asynccontextmanager
async def harness(settings: Settings) -> AsyncIterator[Harness]:
    """An application with these settings, whose database gets its schema."""
    await make_schema(settings.database_url.get_secret_value())
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_stores(settings))
        # The public authorities are read in 30 ms, and no test changes them.
        with patch("engine.wiring.connector.client_context", _client_context):
            services = build_services(settings, stores)
        app = _application(tuple(settings.api_cors_origins), settings.console)
        app.state.services = services
        transport = httpx.ASGITransport(app)
        client = httpx.AsyncClient(transport=transport, base_url="http://api")
        yield Harness(app, stores, await stack.enter_async_context(client))


@functools.cache
def _application(origins: tuple[str, ...], with_console: bool) -> FastAPI:
    """FastAPI makes each route ready at its first request, which takes longer than most tests: an
    application serves all tests that want one like it, one after the other."""
    later: Any = None
    return build_app(
        services=later,
        metrics=ApiMetrics(CollectorRegistry()),
        version="0",
        cors_origins=origins,
        with_console=with_console,
    )


VENUE: Body = VENUES.example | {
    "height": 17,
    "image": "https://library.example/plan.png",
    "time_zone": "Europe/Madrid",
}
BEACON: Body = BEACONS.example | {"x": 12, "y": 40, "color": "#ff8800"}
GEOFENCE: Body = GEOFENCES.example
TAG: Body = {"name": "Door", "active": True}
CAMPAIGN: Body = CAMPAIGNS.example | {"sunday": False}
CONNECTOR: Body = {
    "name": "Loans",
    "url": "http://127.0.0.1:9/offers",
    "method": "POST",
    "auth": "header",
    "parameters": '[{"key": "x-library-key", "value": "demo"}]',
}


class Bodies:
    """Valid bodies, each with a name of its own; keywords change fields, None removes one."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def venue(self, **other: Any) -> Body:
        return self._named(VENUE, other)

    def beacon(self, **other: Any) -> Body:
        return self._named(BEACON, {"minor": next(self._numbers)} | other)

    def geofence(self, **other: Any) -> Body:
        return self._named(GEOFENCE, other)

    def tag(self, **other: Any) -> Body:
        return self._named(TAG, {"value": f"v{next(self._numbers)}"} | other)

    def campaign(self, **other: Any) -> Body:
        return self._named(CAMPAIGN, other)

    def connector(self, **other: Any) -> Body:
        return self._named(CONNECTOR, other)

    def _named(self, example: Body, other: Body) -> Body:
        body = example | {"name": f"{example['name']} {next(self._numbers)}"} | other
        return {name: value for name, value in body.items() if value is not None}


def error_body(answer: httpx.Response, status: int) -> Body:
    """The body of an error, whose shape is checked."""
    assert answer.status_code == status, answer.text
    body = dict(answer.json())
    signing_in = answer.request.url.path == "/v2/auth" and answer.request.method == "POST"
    text = "error_message" if signing_in else "message"
    assert set(body) - {"fields"} == {"status", text, "code"}
    assert (body["status"], body["code"]) == ("error", status)
    return body


class Operation(NamedTuple):
    """A method and the template of a path below /v2, with the example of the document."""

    method: str
    path: str
    body: Body | None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def operations(app: FastAPI) -> list[Operation]:
    """All operations except signing in."""
    found = []
    for path, methods in app.openapi()["paths"].items():
        for method, definition in methods.items():
            content = definition.get("requestBody", {}).get("content", {})
            body = content.get("application/json", {}).get("example")
            found.append(Operation(method.upper(), path.removeprefix("/v2"), body))
    return [operation for operation in found if str(operation) != "POST /auth"]


@contextmanager
def counted(database: Database) -> Iterator[list[str]]:
    """The statements to SQL that are executed within the context, without BEGIN."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if not statement.startswith("BEGIN"):
            statements.append(statement)

    engine = database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    yield statements
    event.remove(engine, "before_cursor_execute", note)
