"""Processes of this version go on beside a newer one, whose tables they find: one release apart."""

from collections import Counter
from pathlib import Path

import pytest

from catalog.migrate import migrate
from tests.catalog.newer_version import add_newer_version
from tests.servers.http_service import content, serving
from tests.servers.proximity import Rig
from tests.servers.waiting import eventually
from tests.system.connectors.customers import SETTINGS, add_customer
from tests.system.topics import TopicSet
from tests.system.traffic import detection
from tests.system.world import World


async def test_old_processes_on_new_tables(
    rig: Rig,
    topics: TopicSet,
    redis_url: str,
    postgres_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig.settings |= SETTINGS | {"REDIS_URL": redis_url, "DATABASE_URL": postgres_url}
    world, seen = World(), dict[str, int]()

    async def come(*udids: str) -> None:
        """New devices come. Each device so far must have received both campaigns once."""
        seen.update(dict.fromkeys(udids, 2))
        await topics.publish([detection(world.beacons[0], udid) for udid in udids])

        async def all_have_both() -> bool:
            bodies = {each["id"]: each for each in await topics.bodies("notifications")}
            return Counter(each["device"]["udid"] for each in bodies.values()) == seen

        await eventually(all_have_both, what="each has both, and both once")

    async def is_exact() -> bool:
        return await rig.start("verify").ended() == 0

    async with serving(content()) as service:
        beacon = add_customer(world, "asked", service.url())
        world.campaign(beacon.venue, "Welcome", [beacon], delay=86_400)
        await world.save(postgres_url)
        await topics.create()
        running = rig.start("run")
        await running.until_ready()
        await come("a", "b")
        with monkeypatch.context() as newer:
            add_newer_version(newer, tmp_path / "newer")
            assert await migrate(postgres_url) == ["0002"]
        await come("c")
        await running.stop()
        again = rig.start("run")
        await again.until_ready()
        await come("d", "e")
        await eventually(is_exact, what="SQL is exact")
