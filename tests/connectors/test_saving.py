"""Saving a connector: no forbidden url is accepted, in the interface and in a catalog file."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from engine.process.settings_sources import load_settings
from tests.api.harness import Bodies, Harness, harness
from tests.cli.proximity import Proximity
from tests.servers.schema import make_schema

METADATA = "http://169.254.169.254/latest/meta-data"


@pytest.fixture
async def api(sqlite_url: str, redis_url: str) -> AsyncIterator[Harness]:
    await make_schema(sqlite_url)
    settings = load_settings(
        database_url=sqlite_url,
        redis_url=redis_url,
        secret_key="a passphrase of the test",
    )
    async with harness(settings) as made:
        yield made


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
