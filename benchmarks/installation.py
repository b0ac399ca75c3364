"""The installation itself: servers, catalog, processes, load and tally, within a context."""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from benchmarks.link import Link
from benchmarks.traffic_tally import QUIET, DetectionStream, TopicTally
from catalog.database import open_database
from catalog.models import Venue
from catalog.secrets import open_cipher
from engine.kafka.topics import Topics
from tests.api.process import make_account
from tests.servers.http_service import (
    Answer,
    HttpService,
    ReceivedRequest,
    content,
    hanging_up,
    replying,
    resetting,
)
from tests.servers.kafka.server import KafkaServer
from tests.servers.postgres import PostgresServer, create_database
from tests.servers.proximity import Command, Rig
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually
from tests.system.topics import TopicSet
from tests.system.traffic import Triple, triple_of
from tests.system.world import REQUESTED, World

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
        process = self.rig.start("api") if role == "api" else self.rig.role(role)
        self.processes[name] = process
        return process

    async def until_ready(self) -> None:
        """Wait until every process can do its work."""
        for process in list(self.processes.values()):
            await eventually(process.is_ready, deadline=_READY, what=f"ready, see {process.log}")

    async def until_drained(self, deadline: float) -> None:
        """Wait until no role has anything left to do."""

        async def is_drained() -> bool:
            return all(lag == 0 for lag in (await self.progress.lags()).values())

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
        topics, kept = Topics.of(_PREFIX), TopicSet(kafka.bootstrap_servers, _PREFIX, "none")
        await kept.create()
        environment = {
            "KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
            "KAFKA_SESSION_TIMEOUT": "6",
            "TOPIC_PREFIX": _PREFIX,
            "GROUP_PREFIX": _GROUPS,
            "REDIS_URL": f"redis://127.0.0.1:{ports['redis']}/0",
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


SECRET_KEY = "a passphrase of the benchmark"  # noqa: S105
EMAIL, PASSWORD = "owner@hall.example", "change-me-please"
HALL, PARTNER = "hall", "partner"
_BEACONS, _PARTNERS_BEACONS = 20, 4
_DAY = 86_400


class Estate(NamedTuple):
    """The beacons to detect, and the ids of records.

    `plain` campaigns fire at every detection of the hall, `requested` ones at every detection of
    the partner's beacons, `edited` only at the first beacon of the hall.
    """

    hall: list[Triple]
    partners: list[Triple]
    plain: frozenset[int]
    requested: frozenset[int]
    edited: int
    venue: int


async def build_estate(database_url: str, service_url: str) -> Estate:
    """Migrate the database and write the catalog."""
    world = World()
    venue = world.venue(world.company(HALL), "Hall")
    beacons = [world.beacon(venue, number) for number in range(_BEACONS)]
    plain = [world.campaign(venue, f"plain {beacon.name}", [beacon]) for beacon in beacons]
    for beacon in beacons:
        world.campaign(venue, f"seldom {beacon.name}", [beacon], delay=_DAY)
    edited = world.campaign(venue, "edited", beacons[:1], title="edit 0")
    partners_venue = _partner(world, service_url)
    partners = [world.beacon(partners_venue, 1000 + number) for number in range(_PARTNERS_BEACONS)]
    requested = [
        world.campaign(partners_venue, f"asked {each.name}", [each], **REQUESTED)
        for each in partners
    ]
    await world.save(database_url)
    await _make_account(database_url)
    return Estate(
        hall=[triple_of(beacon) for beacon in beacons],
        partners=[triple_of(beacon) for beacon in partners],
        plain=frozenset(each.id for each in plain),
        requested=frozenset(each.id for each in requested),
        edited=edited.id,
        venue=venue.id,
    )


def _partner(world: World, service_url: str) -> Venue:
    company = world.company(PARTNER)
    parameters = open_cipher(SECRET_KEY).encrypt(json.dumps([{"key": "x-token", "value": "t"}]))
    world.connector(company, url=service_url, parameters=parameters)
    return world.venue(company, "Pier")


async def _make_account(database_url: str) -> None:
    database = open_database(database_url)
    try:
        await make_account(database, company=HALL, email=EMAIL, password=PASSWORD)
    finally:
        await database.close()


_SECONDS = 5.0
ROLES = ("trigger", "connector", "recorder")


class RoleProgress:
    """`lags` of the three roles in records; None if the servers do not report it."""

    def __init__(
        self, kafka: str, database_url: str, topics: Topics, groups: str, partitions: int
    ) -> None:
        self._topics = topics
        self._partitions = range(partitions)
        self._consumers = {
            role: Consumer(
                {"bootstrap.servers": kafka, "group.id": f"{groups}{role}", "log_level": QUIET}
            )
            for role in ("trigger", "connector")
        }
        self._database = open_database(database_url, command_timeout=_SECONDS)

    async def close(self) -> None:
        """Disconnect."""
        for consumer in self._consumers.values():
            consumer.close()
        await self._database.close()

    async def lags(self) -> dict[str, int | None]:
        """The lag of each role."""
        trigger, connector, recorder = await asyncio.gather(
            asyncio.to_thread(self._group_lag, "trigger", self._topics.detections),
            asyncio.to_thread(self._group_lag, "connector", self._topics.connector_calls),
            self._recorder_lag(),
        )
        return {"trigger": trigger, "connector": connector, "recorder": recorder}

    def _group_lag(self, role: str, topic: str) -> int | None:
        consumer = self._consumers[role]
        places = [TopicPartition(topic, number) for number in self._partitions]
        try:
            committed = consumer.committed(places, _SECONDS)
            ends = [consumer.get_watermark_offsets(place, _SECONDS)[1] for place in places]
        except KafkaException:
            return None
        return sum(ends) - sum(max(0, each.offset) for each in committed)

    async def _recorder_lag(self) -> int | None:
        topics = (self._topics.detections, self._topics.notifications, self._topics.authentications)
        try:
            async with asyncio.timeout(_SECONDS), self._database.read() as session:
                done = await session.scalar(text("SELECT sum(next_offset) FROM recorder_offset"))
            # (Afterwards: a role that comes further meanwhile is not ahead of the brokers.)
            ends = await asyncio.to_thread(self._ends, topics)
        except (KafkaException, SQLAlchemyError, OSError, TimeoutError):
            return None
        return ends - int(done or 0)

    def _ends(self, topics: tuple[str, ...]) -> int:
        consumer = self._consumers["trigger"]
        return sum(
            consumer.get_watermark_offsets(TopicPartition(topic, number), _SECONDS)[1]
            for topic in topics
            for number in self._partitions
        )


_QUICK, _SLOW = 0.03, 0.6
# Of a hundred calls so many are treated so; the others have content.
_FLAWS: tuple[tuple[int, Answer], ...] = (
    (4, replying(503)),
    (3, content(after=_SLOW)),
    (2, resetting),
    (2, hanging_up),
    (1, replying(200, [])),
)


class FlakyPartner:
    """Flawed in twelve of a hundred calls. Down for the last `down` seconds of each `period`."""

    def __init__(self, *, seed: int, period: float = 60.0, down: float = 0.0) -> None:
        self._dice = random.Random(seed)
        self._period = period
        self._down = down
        self._begin = time.monotonic()
        self._content = content(after=_QUICK)
        self._answers = [answer for share, answer in _FLAWS for _ in range(share)]
        self.requested = 0
        self.service = HttpService(self._answer)

    async def _answer(self, received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        self.requested += 1
        self.service.received.clear()  # a long run would fill the memory with them
        since = (time.monotonic() - self._begin) % self._period
        number = self._dice.randrange(100)
        if since > self._period - self._down:
            answer = replying(503)
        else:
            answer = self._answers[number] if number < len(self._answers) else self._content
        await answer(received, writer)
