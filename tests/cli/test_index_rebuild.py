"""`proximity index rebuild`, as a process."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from engine.cli.demo.walk import demo_document
from tests.cli.proximity import Proximity


@pytest.fixture
def command(tmp_path: Path, database_url: str, redis_url: str) -> Proximity:
    more = {
        "PROXIMITY_DATABASE_URL": database_url,
        "PROXIMITY_REDIS_URL": redis_url,
        "PROXIMITY_SECRET_KEY": "a passphrase of some length",
    }
    return Proximity(tmp_path, "127.0.0.1:1", "unused.", **more)


def test_any_content_of_redis_is_replaced(command: Proximity, redis_url: str) -> None:
    early = command("index", "rebuild")
    assert (early.returncode, early.stdout) == (1, "")
    assert "run: proximity migrate" in early.stderr
    assert command("migrate").returncode == 0
    document = json.dumps(demo_document(datetime.now(UTC))).encode()
    assert command("catalog", "load", "-", given=document).returncode == 0
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
