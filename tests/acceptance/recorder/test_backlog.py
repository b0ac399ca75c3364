"""A recorder that was down for long catches up in bounded memory.

With PROXIMITY_TEST_FULL=1 a million detections wait for it.
"""

import os
import random
import re
import time
from pathlib import Path

import pytest

from catalog.database import open_database
from tests.acceptance.recorder.estate import build_estate
from tests.acceptance.recorder.flood import Flood
from tests.acceptance.recorder.publishing import publish
from tests.acceptance.recorder.sql_figures import assert_written, recorded
from tests.acceptance.rig import Rig
from tests.acceptance.topics import TopicSet
from tests.servers.waiting import eventually

FULL = "PROXIMITY_TEST_FULL" in os.environ
DETECTIONS = 1_000_000 if FULL else 60_000
MOST_MEMORY = 400  # MiB, the interpreter and its libraries included


@pytest.mark.timeout(900 if FULL else 120)
async def test_catching_up(
    rig: Rig, topics: TopicSet, kafka_bootstrap: str, redis_url: str, postgres_url: str
) -> None:
    await topics.create()
    estate = await build_estate(postgres_url)
    now_ms = time.time_ns() // 1_000_000
    flood = Flood(estate, random.Random(6), devices=5000, now_ms=now_ms)
    published = await publish(kafka_bootstrap, topics.name(""), flood.detections(DETECTIONS))
    rig.environment |= {"REDIS_URL": redis_url, "DATABASE_URL": postgres_url}
    database = open_database(postgres_url)
    recorder = rig.recorder()

    async def is_done() -> bool:
        assert recorder.process.poll() is None, recorder.output
        return await recorded(database) == published

    try:
        begin = time.monotonic()
        await eventually(is_done, deadline=600 if FULL else 60, what="caught up")
        seconds = time.monotonic() - begin
        peak = _peak_mib(recorder.process.pid)
        await recorder.stop()
        await assert_written(database, flood.expected)
    finally:
        await database.close()
    print(f"{published:,} records in {seconds:.1f} s from the start, at most {peak} MiB")
    assert peak < MOST_MEMORY


def _peak_mib(pid: int) -> int:
    """The peak memory of the process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) // 1024
