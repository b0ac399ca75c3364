"""A recorder that is stopped while SQL does not answer logs only that it stops."""

import asyncio
import random
import signal
import time

import pytest

from catalog.database import open_database
from tests.recorder.estate import build_estate
from tests.recorder.flood import Flood, recorded
from tests.servers.freezing import frozen
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.waiting import eventually
from tests.system.recorder.publishing import publish
from tests.system.rig import Rig
from tests.system.topics import TopicSet


@pytest.mark.timeout(120)
async def test_postgresql_stands_still(
    rig: Rig,
    topics: TopicSet,
    kafka_bootstrap: str,
    redis_url: str,
    own_postgres: PostgresServer,
) -> None:
    """Records arrive, SQL hangs, and the recorder is stopped."""
    url = create_database(own_postgres.admin_url)
    database = open_database(url)
    await topics.create()
    now_ms = time.time_ns() // 1_000_000
    flood = Flood(await build_estate(url), random.Random(8), devices=50, now_ms=now_ms)
    rig.environment |= {"REDIS_URL": redis_url, "DATABASE_URL": url, "DRAIN_TIMEOUT": "1"}
    recorder = rig.recorder()
    await recorder.until_ready()
    first = await publish(kafka_bootstrap, topics.name(""), flood.detections(100))

    async def has_first() -> bool:
        return await recorded(database) >= first

    await eventually(has_first, deadline=30, what="the first records")
    with frozen(own_postgres):
        for make in (flood.detections, flood.notifications, flood.authentications):
            await publish(kafka_bootstrap, topics.name(""), make(200))
        await asyncio.sleep(1)  # nothing shows that all partitions are held up
        recorder.process.send_signal(signal.SIGTERM)
        status = await recorder.ended()
    await database.close()
    assert "never retrieved" not in recorder.output, recorder.output
    assert "Traceback" not in recorder.output, recorder.output
    assert status == 0, recorder.output
