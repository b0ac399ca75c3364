"""schemathesis tries every operation of the OpenAPI document, with every check that it has."""

import asyncio
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import select

from catalog.database import Database
from catalog.models import Company, Device
from tests.acceptance.api.process import ApiProcess
from tests.acceptance.rig import Rig

FULL = "PROXIMITY_TEST_FULL" in os.environ
EXAMPLES = 200 if FULL else 5  # random ones, beside those at the bounds of each field
DEADLINE = 1800.0 if FULL else 300.0
ROOT = Path(__file__).parents[3]
# The document is the same on both; one of them is enough unless there is time.
DATABASES = ["sqlite", "postgres"]
if not FULL:
    DATABASES = ["postgres" if "PROXIMITY_TEST_REQUIRE_SERVERS" in os.environ else "sqlite"]


@pytest.fixture
async def device(database: Database) -> None:
    """The first one, and one to be deleted."""
    now = datetime.now(UTC)
    async with database.write.begin() as session:
        company = await session.scalar(select(Company))
        for udid in ("phone", "a phone that goes"):
            session.add(Device(company=company, udid=udid, create_on=now, update_on=now))
            await session.flush()


@pytest.mark.timeout(DEADLINE + 60)
@pytest.mark.parametrize("database_url", DATABASES, indirect=True)
async def test_the_document_is_true(
    device: None, database: Database, processes: Rig, tmp_path: Path
):
    # A schema cannot say how much is stored already.
    settings = dict.fromkeys(("LOGIN_ATTEMPTS_ACCOUNT", "BEACON_OPEN_CAMPAIGNS"), "100000")
    settings |= {"CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8"}
    served = await ApiProcess(processes, **settings).until_ready()
    headers = await served.sign_in()
    done = await asyncio.to_thread(_schemathesis, served.url, headers, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Tested: 48" in done.stdout
    assert "request failed" not in served.command.output


def _schemathesis(
    url: str, headers: dict[str, str], directory: Path
) -> "subprocess.CompletedProcess[str]":
    sent = [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
    return subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", *sent),
            *("--checks", "all", "--max-examples", str(EXAMPLES), "--seed", "20261120"),
            *("--no-color", "--warnings", "off"),
            # They end the session with which everything else is tried.
            *("--exclude-name", "DELETE /v2/auth", "--exclude-name", "PUT /v2/profile/password"),
        ],
        cwd=directory,
        env=os.environ
        | {
            "SCHEMATHESIS_HOOKS": "tests.acceptance.api.schemathesis_hooks",
            "PYTHONPATH": str(ROOT),
            "TRIED_URL": url,
            "TRIED_HEADERS": json.dumps(headers),
        },
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
