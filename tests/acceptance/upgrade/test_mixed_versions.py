"""An earlier version and this one beside each other, forward and back. PROXIMITY_TEST_FULL=1.

The earlier version's sources come out of git, and run with the packages that are installed.
"""

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.acceptance.rig import Rig
from tests.acceptance.topics import TopicSet
from tests.acceptance.upgrade.release import FIRST, SECOND, Release
from tests.acceptance.upgrade.results import counted, is_exact
from tests.acceptance.upgrade.scene import CATALOG, SECRET_KEY, SERVICE_PORT, Devices, reply
from tests.servers.http_service import serving
from tests.servers.missing import skipping
from tests.servers.waiting import eventually

pytestmark = [
    pytest.mark.skipif("PROXIMITY_TEST_FULL" not in os.environ, reason="a minute"),
    pytest.mark.timeout(300),
]
DEADLINE = 60.0


class Crowd:
    """New devices, a group at a time: each receives both campaigns once."""

    def __init__(self, devices: Devices, topics: TopicSet) -> None:
        self._devices = devices
        self._topics = topics
        self._all: list[str] = []

    async def come(self, count: int = 12) -> None:
        """Publish detections of a group. Every device so far must get both notifications."""
        new = [f"device {len(self._all) + number}" for number in range(count)]
        self._all += new
        await self._devices.detect(*new)

        async def all_have_both() -> bool:
            return await counted(self._topics) == Counter(dict.fromkeys(self._all, 2))

        await eventually(all_have_both, deadline=DEADLINE, what="each has both, and both once")


@pytest.mark.parametrize(
    ("release", "goes_back"),
    [(FIRST, False), (SECOND, True)],
    ids=lambda each: getattr(each, "name", None),
)
async def test_forward_one_by_one_and_back(
    release: Release,
    goes_back: bool,
    rig: Rig,
    topics: TopicSet,
    topic_prefix: str,
    kafka_bootstrap: str,
    redis_url: str,
    postgres_url: str,
    tmp_path: Path,
) -> None:
    with skipping("history", instead="a clone with history"):
        sources = release.check_out(tmp_path / "sources")
    rig.environment |= {
        "REDIS_URL": redis_url,
        "DATABASE_URL": postgres_url,
        "SECRET_KEY": SECRET_KEY,
        "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8",
    }
    before = Rig(tmp_path, rig.environment, sources)
    try:
        async with serving(reply(), port=SERVICE_PORT):
            await _forward_and_back(before, rig, topics, Devices(kafka_bootstrap, topic_prefix))
            last = before.start("run")
            if goes_back:
                await last.until_ready()
                await last.stop()
            else:
                # It does not know of newer tables (decision 0081).
                assert await last.ended() == 1
        await eventually(lambda: is_exact(rig), deadline=DEADLINE, what="SQL is exact")
    finally:
        before.close()


async def _forward_and_back(before: Rig, after: Rig, topics: TopicSet, devices: Devices) -> None:
    crowd = Crowd(devices, topics)
    await topics.create()
    for words in (("migrate",), ("catalog", "load", str(CATALOG))):
        command = before.start(*words)
        assert await command.ended() == 0, command.output
    old = before.start("run")
    await old.until_ready()
    await crowd.come()
    migrate = after.start("migrate")
    assert await migrate.ended() == 0, migrate.output
    await crowd.come()  # the version before, on the new tables
    new = after.start("run")
    await new.until_ready()
    await crowd.come()  # both, each with one partition
    await old.stop()
    await crowd.come()
    await new.stop()
