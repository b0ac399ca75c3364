"""`proximity catalog load` and `proximity index rebuild`, as processes."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from redis import Redis

from engine.cli.demo.walk import demo_document
from tests.servers.proximity import Rig


@pytest.fixture
def command(rig: Rig, database_url: str, redis_url: str) -> Rig:
    rig.settings |= {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
    rig.settings["SECRET_KEY"] = "a passphrase of some length"
    return rig


def test_load_twice_and_rebuild(command: Rig, redis_url: str) -> None:
    file = command.write("catalog.json", json.dumps(demo_document(datetime.now(UTC))).encode())
    for early in (command("catalog", "load", file), command("index", "rebuild")):
        assert (early.returncode, early.stdout) == (1, "")
        assert "run `proximity migrate`" in early.stderr
    assert command("migrate").returncode == 0
    done = command("catalog", "load", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "beacons: 24 created, 0 updated, 0 unchanged" in done.stdout
    assert done.stdout.endswith("the index in Redis is up to date\n")
    assert "beacons: 0 created, 0 updated, 24 unchanged" in command("catalog", "load", file).stdout
    with Redis.from_url(redis_url) as redis:
        right = _fields(redis)
        changes = redis.xlen("proximity:index:changes")
        for number in range(16):
            name = f"proximity:index:{{{number}}}"
            wrong = dict.fromkeys({*redis.hkeys(name), b"c:999999"} - {b"m"}, b"wrong")
            redis.hset(name, mapping=wrong)
        done = command("index", "rebuild")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("the index is built: 24 beacons, ")
        assert _fields(redis) == right
        assert redis.xlen("proximity:index:changes") == changes + 1


def _fields(redis: Redis) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for number in range(16):
        found |= redis.hgetall(f"proximity:index:{{{number}}}")
    del found[b"m"]
    return found


def test_without_redis_the_outbox_keeps_what_is_to_do(rig: Rig, sqlite_url: str) -> None:
    rig.settings |= {"DATABASE_URL": sqlite_url, "REDIS_URL": "redis://127.0.0.1:1/0"}
    assert rig("migrate").returncode == 0
    done = rig("catalog", "load", "-", given=b'{"companies": [{"name": "A"}]}')
    assert done.returncode == 0
    assert "companies: 1 created" in done.stdout
    assert done.stderr.startswith("the index in Redis is not up to date yet (")
    done = rig("catalog", "load", "-", given=b'{"companies": [{"name": "B", "colour": 1}]}')
    assert (done.returncode, done.stdout) == (1, "")
    fault, last = done.stderr.splitlines()
    assert fault.startswith("-: companies[0].colour: ")
    assert last == "proximity: - has 1 fault; nothing was changed"
