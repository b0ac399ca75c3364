"""`run --embedded`: a whole engine from one command, whose servers other commands can reach."""

import asyncio
from functools import partial
from pathlib import Path

import pytest
from dotenv import dotenv_values

from tests.servers.waiting import eventually
from tests.system.probe import Probe
from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.world import small_world


@pytest.mark.timeout(90)
async def test_a_detection_through_an_embedded_engine(tmp_path: Path) -> None:
    world = small_world()
    database = f"sqlite:///{tmp_path / 'catalog.sqlite3'}"
    await world.save(database)
    written = tmp_path / "servers.env"
    rig = Rig(tmp_path, {"DATABASE_URL": database, "KAFKA_SESSION_TIMEOUT": "4"})
    try:
        engine = rig.start("run", "--embedded", "--write-env", str(written))
        await engine.until_ready()
        servers = await asyncio.to_thread(dotenv_values, written)
        bootstrap = servers["PROXIMITY_KAFKA_BOOTSTRAP_SERVERS"]
        assert bootstrap
        assert servers["PROXIMITY_DATABASE_URL"] == database
        topics = TopicSet(bootstrap, "proximity.", "proximity-trigger", partitions=4)
        assert await Probe(topics).fires(world.beacons[0].triple) == {
            "always 0",
            "seldom 0",
            "now and then",
        }
        assert await topics.count("connector-calls") == 1
        _, metrics = await engine.get("/metrics")
        assert "\nprocess_resident_memory_bytes " in metrics
        await engine.stop()
        assert "GET /" not in engine.output  # probes and scrapes have no line each
    finally:
        rig.close()


@pytest.mark.timeout(60)
async def test_its_servers_go_with_it(tmp_path: Path) -> None:
    written = tmp_path / "servers.env"
    rig = Rig(tmp_path, {})
    try:
        engine = rig.start("run", "--embedded", "--write-env", str(written))
        await eventually(written.exists, what="the addresses are written")
        await engine.until_ready()
        engine.kill()
        servers = await asyncio.to_thread(dotenv_values, written)
        for name in ("PROXIMITY_KAFKA_BOOTSTRAP_SERVERS", "PROXIMITY_REDIS_URL"):
            port = (servers[name] or "").removesuffix("/0").rpartition(":")[2]
            await eventually(partial(_is_closed, int(port)), what=f"{name} is gone")
    finally:
        rig.close()


async def _is_closed(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return True
    writer.close()
    await writer.wait_closed()
    return False
