"""The OpenAPI document and its page: schemathesis tries whether answers are as it says."""

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator
from sqlalchemy import select

from catalog.database import Database
from catalog.models import Company, Device
from tests.api.harness import Harness
from tests.api.process import sign_in
from tests.servers.proximity import Command

EXAMPLES = 200 if "PROXIMITY_TEST_FULL" in os.environ else 3
DEADLINE = 1800.0
# They end the session with which everything else is tried, or call an address that was made up.
LEFT_OUT = ("DELETE /v2/auth", "PUT /v2/profile/password", "POST /v2/connector/test")
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,ignored_auth"
)


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    return sqlite_url


@pytest.fixture
def openapi(api: Harness) -> dict[str, Any]:
    return api.app.openapi()


def test_each_body_has_an_example_that_fits(openapi: dict[str, Any]) -> None:
    bodies = [
        each["requestBody"]["content"]["application/json"]
        for path in openapi["paths"].values()
        for each in path.values()
        if "requestBody" in each
    ]
    assert len(bodies) == 25
    for body in bodies:
        validator = Draft202012Validator(body["schema"] | {"components": openapi["components"]})
        assert [error.message for error in validator.iter_errors(body["example"])] == []


@pytest.mark.timeout(DEADLINE + 60)
async def test_the_document_is_true(database: Database, served: Command, tmp_path: Path):
    now = datetime.now(UTC)
    async with database.write.begin() as session:
        company = await session.scalar(select(Company))
        session.add(Device(company=company, udid="phone", create_on=now, update_on=now))
    headers = await sign_in(served)
    done = await asyncio.to_thread(_schemathesis, served.url, headers, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    document = await asyncio.to_thread(httpx.get, f"{served.url}/openapi.json")
    paths = document.json()["paths"].values()
    operations = sum(map(len, paths)) - len(LEFT_OUT)
    assert f"Tested: {operations}" in done.stdout
    assert "request failed" not in served.output


def _schemathesis(
    url: str, headers: dict[str, str], directory: Path
) -> "subprocess.CompletedProcess[str]":
    sent = [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
    return subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", *sent),
            *("--checks", CHECKS, "--max-examples", str(EXAMPLES), "--seed", "20261120"),
            *("--phases", "examples,fuzzing", "--no-color", "--warnings", "off"),
            *(word for name in LEFT_OUT for word in ("--exclude-name", name)),
        ],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
