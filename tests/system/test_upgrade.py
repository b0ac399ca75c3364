"""Processes of this version go on beside a newer one, whose tables they find: one release apart."""

from pathlib import Path

import pytest

from catalog.migrate import migrate
from tests.catalog.newer_version import add_newer_version
from tests.servers.http_service import serving
from tests.servers.waiting import eventually
from tests.system.rig import Rig
from tests.system.scene import CATALOG, SECRET_KEY, SERVICE_PORT, Devices, counted, is_exact, reply
from tests.system.topics import TopicSet

DEADLINE = 60.0


@pytest.mark.timeout(240)
async def test_old_processes_on_new_tables(
    rig: Rig,
    topics: TopicSet,
    topic_prefix: str,
    kafka_bootstrap: str,
    redis_url: str,
    postgres_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig.environment |= {
        "REDIS_URL": redis_url,
        "DATABASE_URL": postgres_url,
        "SECRET_KEY": SECRET_KEY,
        "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8",
    }
    devices, seen = Devices(kafka_bootstrap, topic_prefix), dict[str, int]()

    async def come(*udids: str) -> None:
        """New devices come. Each device so far must have received both campaigns once."""
        seen.update(dict.fromkeys(udids, 2))
        await devices.detect(*udids)

        async def all_have_both() -> bool:
            return await counted(topics) == seen

        await eventually(all_have_both, deadline=DEADLINE, what="each has both, and both once")

    await topics.create()
    for words in (("migrate",), ("catalog", "load", str(CATALOG))):
        command = rig.start(*words)
        assert await command.ended() == 0, command.output
    async with serving(reply(), port=SERVICE_PORT):
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
        await eventually(lambda: is_exact(rig), deadline=DEADLINE, what="SQL is exact")
