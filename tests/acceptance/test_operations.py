"""The procedures of docs/operations.md: a restore, new keys, a lost Kafka.

With PROXIMITY_TEST_FULL=1. What happens when Redis is lost is in test_redis_flush.py.
"""

import asyncio
import os
import shutil
from collections import Counter
from pathlib import Path

import httpx
import pytest
from sqlalchemy import func, select

from catalog.database import open_database
from catalog.models import Device, Outbox
from tests.acceptance.api.process import ApiProcess
from tests.acceptance.rig import Command, Rig
from tests.acceptance.topics import TopicSet
from tests.acceptance.upgrade import sql_state
from tests.acceptance.upgrade.results import counted, is_exact
from tests.acceptance.upgrade.scene import CATALOG, SECRET_KEY, SERVICE_PORT, Devices, reply
from tests.servers.http_service import serving
from tests.servers.kafka.server import KafkaServer
from tests.servers.postgres import drop_database, execute
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually

pytestmark = [
    pytest.mark.skipif("PROXIMITY_TEST_FULL" not in os.environ, reason="half a minute each"),
    pytest.mark.timeout(300),
]
DEADLINE = 90.0
NEW_KEY = "another passphrase entirely"
EMAIL, PASSWORD = "owner@shop.example", "change-me-please"


async def ended(command: Command) -> str:
    """The output of a command, whose exit status must be 0."""
    assert await command.ended() == 0, command.output
    return command.output


async def prepared(rig: Rig, topics: TopicSet, redis_url: str, database_url: str) -> None:
    """Settings of every process, tables and a catalog."""
    rig.environment |= {
        "REDIS_URL": redis_url,
        "DATABASE_URL": database_url,
        "SECRET_KEY": SECRET_KEY,
        "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8",
    }
    await topics.create()
    await ended(rig.start("migrate"))
    await ended(rig.start("catalog", "load", str(CATALOG)))


async def until_both(topics: TopicSet, *udids: str) -> None:
    """Exactly these devices have received both campaigns, once each."""

    async def each_has() -> bool:
        return await counted(topics) == Counter(dict.fromkeys(udids, 2))

    await eventually(each_has, deadline=DEADLINE, what=f"{udids} have both")


async def until_exact(rig: Rig) -> None:
    await eventually(lambda: is_exact(rig), deadline=DEADLINE, what="SQL is exact")


async def test_sql_is_restored_to_an_earlier_moment(
    rig: Rig,
    topics: TopicSet,
    topic_prefix: str,
    kafka_bootstrap: str,
    redis_url: str,
    postgres_url: str,
) -> None:
    await prepared(rig, topics, redis_url, postgres_url)
    devices = Devices(kafka_bootstrap, topic_prefix)
    async with serving(reply(), port=SERVICE_PORT):
        others = [rig.start("run", "--role", role) for role in ("trigger", "connector")]
        recorder = rig.recorder()
        for command in (*others, recorder):
            await command.until_ready()
        await devices.detect("a", "b")
        await until_both(topics, "a", "b")
        await until_exact(rig)
        backup = await asyncio.to_thread(sql_state.dump, postgres_url)
        await devices.detect("c")
        await until_both(topics, "a", "b", "c")
        await until_exact(rig)

        await recorder.stop()
        await asyncio.to_thread(_restore, backup, postgres_url)
        await devices.detect("d")
        await until_both(topics, "a", "b", "c", "d")
        recorder = rig.recorder()
        await recorder.until_ready()
        await until_exact(rig)
        for command in (*others, recorder):
            await eventually(command.is_ready, deadline=DEADLINE)
            await command.stop()


def _restore(backup: str, url: str) -> None:
    """Restore over a database to which other processes are connected."""
    admin, _, name = url.rpartition("/")
    drop_database(f"{admin}/postgres", url)
    execute(f"{admin}/postgres", f'CREATE DATABASE "{name}"')
    sql_state.load(backup, url)


async def test_a_new_secret_key_without_a_failed_call(
    rig: Rig,
    topics: TopicSet,
    topic_prefix: str,
    kafka_bootstrap: str,
    redis_url: str,
    sqlite_url: str,
) -> None:
    await prepared(rig, topics, redis_url, sqlite_url)
    devices = Devices(kafka_bootstrap, topic_prefix)
    async with serving(reply(), port=SERVICE_PORT) as service:
        engine, interface = rig.start("run"), ApiProcess(rig)
        await engine.until_ready()
        await devices.detect("a")
        await until_both(topics, "a")
        # The roles first: what the interface encrypts with the new key they can read.
        both = {"SECRET_KEY": f"{NEW_KEY},{SECRET_KEY}"}
        await interface.until_ready()
        await engine.stop()
        engine = rig.start("run", **both)
        await engine.until_ready()
        await interface.command.stop()
        interface = await ApiProcess(rig, **both).until_ready()
        await _rename_connector(interface)
        await devices.detect("b")
        await until_both(topics, "a", "b")
        assert "0 connectors" not in await ended(rig.start("connector", "rekey", **both))
        await eventually(lambda: _is_indexed(rig), deadline=DEADLINE)
        await engine.stop()
        engine = rig.start("run", SECRET_KEY=NEW_KEY)
        await engine.until_ready()
        await devices.detect("c")
        await until_both(topics, "a", "b", "c")
        assert all(received.headers["x-token"] == "t" for received in service.received)
        await engine.stop()
        await interface.command.stop()
    assert "no dead letters" in await ended(rig.start("dead-letters", "list"))


async def _rename_connector(interface: ApiProcess) -> None:
    """Save the connector again, with the parameters that it had."""
    async with httpx.AsyncClient(base_url=f"{interface.url}/v2", timeout=30) as client:
        answer = await client.post("/auth", json={"email": EMAIL, "password": PASSWORD})
        token = answer.json()["session"]["token"]
        client.headers.update({"x-service-key": EMAIL, "x-service-token": token})
        fields = {
            "name": "renamed",
            "url": f"http://127.0.0.1:{SERVICE_PORT}/ask",
            "method": "POST",
            "auth": "header",
            "parameters": '[{"key": "x-token", "value": "t"}]',
        }
        answer = await client.put("/connector", json=fields)
        assert answer.status_code == 200, answer.text


async def _is_indexed(rig: Rig) -> bool:
    """Whether the index has every edit."""
    database = open_database(rig.environment["DATABASE_URL"])
    try:
        async with database.write.begin() as session:
            return not await session.scalar(select(func.count()).select_from(Outbox))
    finally:
        await database.close()


async def test_all_of_kafka_is_lost(
    rig: Rig, own_kafka: KafkaServer, topic_prefix: str, redis_url: str, postgres_url: str
) -> None:
    place = own_kafka.bootstrap_servers
    rig.environment["KAFKA_BOOTSTRAP_SERVERS"] = place
    topics = TopicSet(place, topic_prefix, f"{topic_prefix}g.trigger")
    await prepared(rig, topics, redis_url, postgres_url)
    devices = Devices(place, topic_prefix)
    async with serving(reply(), port=SERVICE_PORT):
        engine = rig.start("run")
        await engine.until_ready()
        await devices.detect("a")
        await until_both(topics, "a")
        await until_exact(rig)
        await engine.stop()
        await asyncio.to_thread(_recreated, own_kafka)
        engine = rig.start("run")
        await engine.until_ready()
        await devices.detect("a", "b")  # one that has both, whose claims are in Redis
        await until_both(topics, "b")
        await until_exact(rig)
        verify = await ended(rig.start("verify"))
        await engine.stop()
    assert await figures(postgres_url) == {"a": (2, 2), "b": (1, 2)}, verify


def _recreated(kafka: KafkaServer) -> None:
    kafka.kill()
    shutil.rmtree(Path(kafka.directory) / "data")
    kafka.prepare()
    kafka.start()


async def figures(url: str) -> dict[str, tuple[int, int]]:
    """nb_beacon and nb_campaign of each device."""
    database = open_database(url)
    try:
        async with database.engine.connect() as connection:
            columns = (Device.udid, Device.nb_beacon, Device.nb_campaign)
            rows = await connection.execute(select(*columns).where(Device.nb_beacon > 0))
            return {udid: (beacons, campaigns) for udid, beacons, campaigns in rows}
    finally:
        await database.close()


async def test_a_redis_user_of_its_own(
    rig: Rig,
    topics: TopicSet,
    topic_prefix: str,
    kafka_bootstrap: str,
    own_redis: RedisServer,
    sqlite_url: str,
) -> None:
    """With exactly the rights that the document names."""
    with own_redis.connect() as client:
        rights = f"on >hushhush ~{topic_prefix}* +@all -@admin -@dangerous +info"
        client.execute_command("ACL", "SETUSER", "proximity", *rights.split())
        client.execute_command("ACL", "SETUSER", "default", "off")
    url = own_redis.url.replace("//", "//proximity:hushhush@")
    await prepared(rig, topics, url, sqlite_url)
    async with serving(reply(), port=SERVICE_PORT):
        engine, interface = rig.start("run"), ApiProcess(rig)
        await engine.until_ready()
        await interface.until_ready()
        await Devices(kafka_bootstrap, topic_prefix).detect("a")
        await until_both(topics, "a")
        await _rename_connector(interface)
        await until_exact(rig)
        await ended(rig.start("check"))
        await ended(rig.start("forget", "Shop", "a", "--yes"))
        await engine.stop()
        await interface.command.stop()
    written = engine.output + interface.command.output
    assert "NOPERM" not in written
    assert "INFO" not in written
    assert "server failed" not in written
