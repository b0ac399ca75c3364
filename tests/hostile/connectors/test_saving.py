"""Saving a connector: names that hang delay nothing else, and no forbidden url is accepted."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from api.sessions.sign_in import Passwords
from catalog.redis_connection import connect_redis
from engine.process.settings_sources import load_settings
from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, harness
from tests.integration.commands.proximity import Proximity
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually

HANGING = 12
DEADLINE = 1.0  # CONNECTOR_CONNECT_TIMEOUT
METADATA = "http://169.254.169.254/latest/meta-data"


@pytest.fixture
async def api(sqlite_url: str, redis_url: str) -> AsyncIterator[Harness]:
    await make_schema(sqlite_url)
    passwords = Passwords()
    settings = load_settings(
        database_url=sqlite_url,
        redis_url=redis_url,
        secret_key="a passphrase of the test",
        connector_connect_timeout=DEADLINE,
    )
    async with harness(settings, passwords) as made:
        yield made
    passwords.close()


@pytest.fixture
def hanging_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The system's resolver, in which names that begin with `hangs` never resolve."""
    looked_up: list[str] = []
    release = threading.Event()
    look_up = socket.getaddrinfo

    def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
        if str(host).startswith("hangs"):
            looked_up.append(str(host))
            release.wait(60)
            raise socket.gaierror("no answer")
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield looked_up
    release.set()


async def test_names_that_hang_delay_no_new_connection(
    api: Harness, redis_url: str, hanging_names: list[str]
) -> None:
    bodies = Bodies()
    owners = [await api.account() for _ in range(HANGING)]
    begin = time.monotonic()
    saving = [
        asyncio.create_task(
            api.call(
                "PUT",
                "/connector",
                owner,
                bodies.connector(url=f"https://hangs{number}.example/"),
            )
        )
        for number, owner in enumerate(owners)
    ]
    await eventually(lambda: len(hanging_names) >= HANGING, what="all names are looked up")
    async with asyncio.timeout(30):
        # As a new connection to SQL or Redis does: a look-up on the loop's own threads.
        called_at = time.monotonic()
        assert await asyncio.get_running_loop().getaddrinfo("localhost", 80)
        redis = connect_redis(redis_url.replace("127.0.0.1", "localhost"))
        assert await redis.ping()
        await redis.aclose()
        waited = time.monotonic() - called_at
        answers = await asyncio.gather(*saving)
    assert waited < 5.0, "not behind twelve look-ups that hang for a minute"
    # A name that does not resolve now is accepted, at the end of its deadline.
    assert {answer.status_code for answer in answers} == {200}
    assert time.monotonic() - begin < DEADLINE + 15.0


async def test_a_parameter_that_the_request_says_itself_is_refused_by_name(api: Harness) -> None:
    owner = await api.account()
    listed = [{"key": "Content-Length", "value": "0"}, {"key": "x-token", "value": "geheim"}]
    body = Bodies().connector(url="https://hangs.invalid/", auth="header", parameters=listed)
    answer = await api.call("PUT", "/connector", owner, body)
    assert answer.status_code == 400
    assert "Content-Length" in answer.json()["fields"]["parameters"]
    assert "geheim" not in answer.text
    assert (await api.call("GET", "/connector", owner)).status_code == 404


def test_a_catalog_leads_no_connector_inside(tmp_path: Path, sqlite_url: str) -> None:
    command = Proximity(
        tmp_path,
        "127.0.0.1:1",
        "unused.",
        PROXIMITY_DATABASE_URL=sqlite_url,
        PROXIMITY_REDIS_URL="redis://127.0.0.1:1/0",
        PROXIMITY_SECRET_KEY="a passphrase of some length",
    )
    assert command("migrate").returncode == 0
    connector = {"name": "c", "url": METADATA, "method": "POST", "auth": "header"}
    listed = [{"key": "Host", "value": "geheim"}]
    companies = [
        {"name": "A", "connector": {**connector, "parameters": []}},
        {"name": "B", "connector": {**connector, "parameters": listed}},
    ]
    done = command("catalog", "load", "-", given=json.dumps({"companies": companies}).encode())
    assert done.returncode == 1
    assert done.stderr.count("leads to an address that is not public") == 2
    assert "companies[1].connector.parameters" in done.stderr
    assert "Host" in done.stderr
    assert "geheim" not in done.stderr
    assert done.stderr.endswith("has 3 faults; nothing was changed\n")
