"""Records what an earlier version leaves behind in Kafka, Redis and PostgreSQL.

    python -m tests.acceptance.upgrade.record first

runs that version's own sources, out of git, with the packages that are installed, and writes
left_by/first. To be run once a release, for what it wrote is what the tests are about.

What it leaves: eight devices with both campaigns; four whose connector calls wait; four, one of
them
for the second time, whose detections wait; dead letters, authentications.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.acceptance.rig import Rig
from tests.acceptance.topics import TopicSet
from tests.acceptance.upgrade import kafka_state, redis_state, sql_state
from tests.acceptance.upgrade.kafka_state import PARTITIONS
from tests.acceptance.upgrade.release import RELEASES, Release
from tests.acceptance.upgrade.scene import CATALOG, SECRET_KEY, SERVICE_PORT, Devices, reply
from tests.servers.http_service import serving
from tests.servers.kafka.server import KafkaServer
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.process import started
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually

TOPICS, GROUPS, REDIS = "was.", "was.g.", "was:"
DEADLINE = 60.0
EARLIER = [f"device {number}" for number in range(8)]
WAITING = [f"device {number}" for number in range(8, 12)]
LATER = ["device 0", *(f"device {number}" for number in range(12, 15))]


async def play(release: Release, servers: dict[str, str], directory: Path) -> None:
    """The events before the upgrade."""
    bootstrap = servers["KAFKA_BOOTSTRAP_SERVERS"]
    settings = servers | {
        "TOPIC_PREFIX": TOPICS,
        "GROUP_PREFIX": GROUPS,
        "REDIS_PREFIX": REDIS,
        "SECRET_KEY": SECRET_KEY,
        "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8",
        "KAFKA_SESSION_TIMEOUT": "6",
    }
    sources = await asyncio.to_thread(release.check_out, directory / "sources")
    rig = Rig(directory, settings, sources)
    topics = TopicSet(bootstrap, TOPICS, f"{GROUPS}trigger", PARTITIONS)
    devices = Devices(bootstrap, TOPICS)
    try:
        await topics.create()
        assert await rig.start("migrate").ended() == 0
        assert await rig.start("catalog", "load", str(CATALOG)).ended() == 0
        every_role = rig.start("run")
        await every_role.until_ready()
        await devices.detect(*EARLIER)
        await devices.detect("device 1", minor=9)
        await devices.send_junk("junk 1", "junk 2")
        await devices.open_application(*EARLIER[:3])

        async def recorded() -> bool:
            verify = rig.start("verify")
            return await verify.ended() == 0 and await topics.count("notifications") == 16

        await eventually(recorded, deadline=DEADLINE, what="all is recorded")
        await every_role.stop()
        trigger = rig.trigger()
        await devices.detect(*WAITING)
        await topics.until_done()
        await trigger.stop()
        await devices.detect(*LATER)
        await devices.send_junk("junk 3")
    finally:
        rig.close()


async def record(release: Release, directory: Path) -> None:
    """Run the release on its own servers, and write its state into files."""
    with (
        started(KafkaServer) as kafka,
        started(RedisServer) as redis,
        started(PostgresServer) as postgres,
    ):
        database = create_database(postgres.admin_url)
        servers = {
            "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "REDIS_URL": redis.url,
            "DATABASE_URL": database,
        }
        async with serving(reply(), port=SERVICE_PORT):
            await play(release, servers, directory)
        release.folder.mkdir(parents=True, exist_ok=True)
        left = await kafka_state.dump(kafka.bootstrap_servers, TOPICS, GROUPS)
        (release.folder / "kafka.jsonl").write_text(left)
        (release.folder / "redis.jsonl").write_text(redis_state.dump(redis.url))
        (release.folder / "postgresql.sql").write_text(sql_state.dump(database))


def main(name: str) -> None:
    """Record the release of this name."""
    (release,) = [each for each in RELEASES if each.name == name]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        asyncio.run(record(release, Path(directory)))


if __name__ == "__main__":
    main(*sys.argv[1:])
