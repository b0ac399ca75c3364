import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine.cli.demo.walk import demo_document
from tests.cli.proximity import Proximity

KEY = "a passphrase of some length"


@pytest.fixture
def command(tmp_path: Path, database_url: str, redis_url: str) -> Proximity:
    more = {
        "PROXIMITY_DATABASE_URL": database_url,
        "PROXIMITY_REDIS_URL": redis_url,
        "PROXIMITY_SECRET_KEY": KEY,
    }
    return Proximity(tmp_path, "127.0.0.1:1", "unused.", **more)


def test_load_twice(command: Proximity) -> None:
    file = command.write("catalog.json", json.dumps(demo_document(datetime.now(UTC))).encode())
    early = command("catalog", "load", file)
    assert (early.returncode, early.stdout) == (1, "")
    assert early.stderr.endswith("run: proximity migrate\n")
    assert command("migrate").returncode == 0
    done = command("catalog", "load", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "beacons: 24 created, 0 updated, 0 unchanged" in done.stdout
    assert done.stdout.endswith("the index in Redis is up to date\n")
    again = command("catalog", "load", file)
    assert again.returncode == 0
    assert "beacons: 0 created, 0 updated, 24 unchanged" in again.stdout


def test_faults_are_all_named_and_nothing_changes(command: Proximity) -> None:
    assert command("migrate").returncode == 0
    document = {"companies": [{"name": "A", "colour": 1, "venues": [{"name": "V"}]}]}
    done = command("catalog", "load", "-", given=json.dumps(document).encode())
    assert (done.returncode, done.stdout) == (1, "")
    *faults, last = done.stderr.splitlines()
    assert last == f"proximity: - has {len(faults)} faults; nothing was changed"
    assert len(faults) == 3
    assert faults[0].startswith("-: companies[0].colour: ")


def test_without_redis_the_outbox_keeps_what_is_to_do(tmp_path: Path, sqlite_url: str) -> None:
    more = {
        "PROXIMITY_DATABASE_URL": sqlite_url,
        "PROXIMITY_REDIS_URL": "redis://127.0.0.1:1/0",
    }
    command = Proximity(tmp_path, "127.0.0.1:1", "unused.", **more)
    assert command("migrate").returncode == 0
    done = command("catalog", "load", "-", given=b'{"companies": [{"name": "A"}]}')
    assert done.returncode == 0
    assert "companies: 1 created" in done.stdout
    assert done.stderr.startswith("the index in Redis is not up to date yet (")
    assert done.stderr.count("\n") == 1
