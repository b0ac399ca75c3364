"""`run --embedded`: a whole engine from one command, whose servers other commands can reach."""

import asyncio
from pathlib import Path

from dotenv import dotenv_values

from tests.servers.proximity import Rig
from tests.system.scene import Scene
from tests.system.topics import TopicSet
from tests.system.world import small_world


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
        topics = TopicSet(bootstrap, "proximity.", "proximity-", partitions=4)
        fired = await Scene(rig, topics, world).fires(world.beacons[0])
        assert fired == {"always 0", "seldom 0", "now and then"}
        assert await topics.count("connector-calls") == 1
        await engine.stop()
        assert "GET /" not in engine.output  # probes and scrapes have no line each
    finally:
        rig.close()


async def test_the_embedded_broker_cannot_do_exactly_once(tmp_path: Path, sqlite_url: str) -> None:
    done = Rig(tmp_path, {}).start(
        "run", "--embedded", DELIVERY="exactly_once", DATABASE_URL=sqlite_url
    )
    assert await done.ended() == 1
    assert "PROXIMITY_DELIVERY=exactly_once needs a real Kafka" in done.output
