"""The installation itself: servers, catalog, processes, load and tally, within a context."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.installation.estate import SECRET_KEY, Estate, build_estate
from benchmarks.installation.link import Link
from benchmarks.installation.progress import RoleProgress
from benchmarks.installation.service import FlakyPartner
from benchmarks.installation.stream import DetectionStream
from benchmarks.installation.tally import TopicTally
from engine.kafka.topics import Topics
from tests.acceptance.rig import Command, Rig, free_ports
from tests.acceptance.topics import TopicSet
from tests.servers.kafka.server import KafkaServer
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually

PARTITIONS = 6
_PREFIX, _GROUPS = "installation.", "installation-"
_SHARE, _DEVICES = 0.05, 2000
_READY = 120.0


@dataclass
class Installation:
    """The running parts. `links` are the relays to Redis, PostgreSQL and the partner's service."""

    kafka: KafkaServer
    redis: RedisServer
    postgres: PostgresServer
    links: Mapping[str, Link]
    partner: FlakyPartner
    rig: Rig
    estate: Estate
    stream: DetectionStream
    tally: TopicTally
    progress: RoleProgress
    processes: dict[str, Command] = field(default_factory=dict)

    def start(self, name: str, role: str) -> Command:
        """Start a process of the role (or of the interface, `api`) under this name."""
        if role == "api":
            port = free_ports()
            ports = {"API_PORT": str(port + 1), "API_METRICS_PORT": str(port)}
            process = self.rig.start("api", **ports)
            process.port = port
        else:
            process = self.rig.start("run", "--role", role)
        self.processes[name] = process
        return process

    async def until_ready(self) -> None:
        """Wait until every process can do its work."""
        for process in list(self.processes.values()):
            await eventually(process.is_ready, deadline=_READY, what=f"ready, see {process.log}")

    async def until_drained(self, deadline: float) -> None:
        """Wait until no role has anything left to do."""

        async def is_drained() -> bool:
            return not any((await self.progress.lags()).values())

        await eventually(is_drained, deadline=deadline, what="everything is done")

    def faults(self) -> list[str]:
        """The faults after the drain, message by message."""
        stream, tally = self.stream, self.tally
        found = []
        if stream.lost:
            found.append(f"{stream.lost} detections never reached the broker")
        if tally.plain != stream.hall:
            found.append(f"{tally.plain} notifications for {stream.hall} detections of the hall")
        if tally.calls != stream.partners:
            found.append(f"{tally.calls} calls for {stream.partners} detections of the partner")
        if tally.open:
            found.append(f"{len(tally.open)} calls of which nothing came")
        if tally.unexpected:
            found.append(f"dead letters: {dict(tally.unexpected)}")
        return found

    async def final_faults(self, deadline: float) -> list[str]:
        """The faults, once the last messages have been read."""
        try:
            await eventually(lambda: not self.faults(), deadline=deadline)
        except AssertionError:
            return self.faults()
        return []

    async def verify(self) -> tuple[int, str]:
        """Run `proximity verify`. Returns its exit status and its output."""
        verify = self.rig.start("verify")
        return await verify.ended(600), verify.output


@asynccontextmanager
async def installation(
    kafka: KafkaServer,
    redis: RedisServer,
    postgres: PostgresServer,
    *,
    partner: FlakyPartner,
    seed: int,
    redis_url: str | None = None,
    is_direct: bool = False,
) -> AsyncIterator[Installation]:
    """An installation with these servers and its catalog, without processes. `is_direct`: without
    relays to Redis and SQL, which cost some processor time."""
    async with AsyncExitStack() as stack:
        database = await asyncio.to_thread(create_database, postgres.admin_url)
        await stack.enter_async_context(partner.service.running())
        targets = {"redis": redis.port, "sql": postgres.port, "partner": partner.service.port}
        links = {
            name: await stack.enter_async_context(Link(port).running())
            for name, port in targets.items()
        }
        ports = targets if is_direct else {name: link.port for name, link in links.items()}
        service = f"http://127.0.0.1:{links['partner'].port}/"
        estate = await build_estate(database, service)
        topics, kept = Topics.named(_PREFIX), TopicSet(kafka.bootstrap_servers, _PREFIX, "none")
        await kept.create()
        environment = {
            "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "KAFKA_SESSION_TIMEOUT": "6",
            "TOPIC_PREFIX": _PREFIX,
            "GROUP_PREFIX": _GROUPS,
            "REDIS_URL": redis_url or f"redis://127.0.0.1:{ports['redis']}/0",
            "DATABASE_URL": database.replace(f":{postgres.port}/", f":{ports['sql']}/"),
            "SECRET_KEY": SECRET_KEY,
            "CONNECTOR_ALLOW_NETWORKS": "127.0.0.0/8",
            "LOG_FORMAT": "json",
        }
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="proximity-run-"))
        rig = Rig(Path(directory), environment)
        stack.callback(rig.close)
        stream = DetectionStream(
            kafka.bootstrap_servers,
            topics.detections,
            estate,
            seed=seed,
            share=_SHARE,
            devices=_DEVICES,
        )
        tally = TopicTally(kafka.bootstrap_servers, topics, estate, PARTITIONS)
        stack.enter_context(tally.reading())
        progress = RoleProgress(kafka.bootstrap_servers, database, topics, _GROUPS, PARTITIONS)
        stack.push_async_callback(progress.close)
        yield Installation(
            kafka, redis, postgres, links, partner, rig, estate, stream, tally, progress
        )
