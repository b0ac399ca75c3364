"""Topics of three formats, from the report to SQL, `verify`, `replay` and the dead letters."""

import base64
import csv
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from aiokafka import AIOKafkaProducer
from sqlalchemy import select

from catalog.database import open_database
from catalog.models import Device
from tests.formats import registered
from tests.servers.schema_registry import schema_registry
from tests.servers.waiting import eventually
from tests.system.rig import Command, Rig
from tests.system.topics import TopicSet
from tests.system.world import World

PARTITIONS = 2
EVENT = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"1"),
    ("ce_source", b"/hall"),
    ("ce_type", b"org.example.detection"),
]
BATCH = [("content-type", b"application/cloudevents-batch+json")]
GUID = UUID("89791762-2336-4186-9674-299b90a802e2")


class Plan:
    """A venue with two beacons and a campaign at both, and reports about them."""

    def __init__(self) -> None:
        self.now = datetime.now(UTC).replace(microsecond=0)
        self.world = World(self.now)
        venue = self.world.venue(self.world.company("alpha"), "Hall")
        plans = [self.world.beacon(venue, minor) for minor in (4, 6)]
        self.world.campaign(venue, "welcome", plans, delay=86_400)
        self.beacons = [plan.record for plan in plans]

    def report(self) -> bytes:
        """A Minew gateway's report: one beacon twice, the other once, and an unknown beacon."""
        at = self.now.isoformat().replace("+00:00", "Z")
        gateway = {"timestamp": at, "type": "Gateway", "mac": "AC23"}
        stranger = {"timestamp": at, "type": "Unknown", "mac": "1918", "rssi": -70}
        received = [
            {
                "timestamp": at,
                "type": "iBeacon",
                "mac": "C300",
                "ibeaconUuid": beacon.uuid.replace("-", "").upper(),
                "ibeaconMajor": beacon.major,
                "ibeaconMinor": beacon.minor,
                "rssi": -50,
                "ibeaconTxPower": -59,
            }
            for beacon in (*self.beacons, self.beacons[0])
        ]
        return json.dumps([gateway, *received, stranger]).encode()

    def batch(self) -> bytes:
        """CloudEvents of a phone that received both beacons, the second one in base64."""
        event = {"specversion": "1.0", "id": "1", "source": "/hall", "type": "t"}
        second = json.dumps(self.detection("phone", self.beacons[1])).encode()
        data: list[dict[str, Any]] = [
            {"data": self.detection("phone")},
            {"data_base64": base64.b64encode(second).decode()},
        ]
        return json.dumps([event | each for each in data]).encode()

    def detection(self, udid: str, beacon: Any = None) -> dict[str, Any]:
        """A detection of the first beacon, or of another one, by a phone."""
        beacon = beacon or self.beacons[0]
        triple = {"uuid": beacon.uuid, "major": beacon.major, "minor": beacon.minor}
        return triple | {"rssi": -50, "device": {"udid": udid}}


async def publish(
    bootstrap: str, topic: str, value: bytes, headers: Sequence[tuple[str, bytes]] = ()
) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait(topic, value, key=b"hall", headers=list(headers))


async def counters(url: str) -> dict[str, tuple[int, int]]:
    """nb_beacon and nb_campaign by udid."""
    database = open_database(url)
    try:
        async with database.engine.connect() as connection:
            rows = await connection.execute(
                select(Device.udid, Device.nb_beacon, Device.nb_campaign)
            )
            return {udid: (beacons, campaigns) for udid, beacons, campaigns in rows}
    finally:
        await database.close()


def sent_by_replay(path: Path) -> list[tuple[str, str]]:
    """Device and id of all notifications in the file that a replay has written."""
    with path.open(encoding="utf-8") as stream:
        return sorted((row["udid"], row["id"]) for row in csv.DictReader(stream))


async def ended(command: Command) -> str:
    """The output of a command, whose exit status must be 0."""
    status = await command.ended()
    assert status == 0, command.output
    return command.output


@pytest.mark.timeout(90)
async def test_three_formats_from_end_to_end(
    rig: Rig,
    topics: TopicSet,
    kafka_bootstrap: str,
    redis_url: str,
    sqlite_url: str,
    tmp_path: Path,
) -> None:
    plan = Plan()
    await plan.world.save(sqlite_url)
    minew, apps, avro = (topics.name(name) for name in ("minew", "apps", "avro"))
    async with schema_registry({7: registered.AVRO, GUID: registered.AVRO}) as registry:
        rig.environment |= {
            "REDIS_URL": redis_url,
            "DATABASE_URL": sqlite_url,
            "TOPIC_PARTITIONS": str(PARTITIONS),
            "DETECTION_TOPICS": f"{minew}=minew,{apps}=cloudevents+own,{avro}=avro",
            "SCHEMA_REGISTRY_URL": registry.url(),
        }
        engine = rig.start("run")
        await engine.until_ready()
        phone = json.dumps(plan.detection("phone")).encode()
        message = registered.avro(plan.detection("tablet") | {"detected_at": plan.now})
        await publish(kafka_bootstrap, minew, plan.report())
        await publish(kafka_bootstrap, apps, phone, EVENT)
        await publish(kafka_bootstrap, apps, phone[:-1], EVENT)  # cut off: a dead letter
        await publish(kafka_bootstrap, apps, plan.batch(), BATCH)
        await publish(kafka_bootstrap, avro, registered.framed(7, message))
        await publish(kafka_bootstrap, avro, message, [registered.header(GUID)])
        await publish(kafka_bootstrap, topics.name("detections"), phone)

        expected = {"gateway:AC23": (3, 1), "phone": (4, 1), "tablet": (2, 1)}

        async def recorded() -> bool:
            return await counters(sqlite_url) == expected

        await eventually(recorded, deadline=45, what=f"{expected} are recorded, see {engine.log}")
        printed = await ended(rig.start("verify"))
        assert "(1 of them malformed)" in printed
        assert "no differences" in printed
        written = tmp_path / "sent.csv"
        printed = await ended(rig.start("replay", "--sends", str(written)))
        assert "replayed 9 detections" in printed

        async def left(topic: str) -> list[Any]:
            reader = TopicSet(kafka_bootstrap, "", "none", PARTITIONS)
            return await reader.read(topic)

        sent = [json.loads(each.value) for each in await left(topics.name("notifications"))]
        live = sorted((each["device"]["udid"], each["id"]) for each in sent)
        replayed = sent_by_replay(written)
        assert [udid for udid, _ in replayed] == [udid for udid, _ in live] == sorted(expected)
        # (The phone was detected on two topics, which have no order.)
        assert (replayed[0], replayed[2]) == (live[0], live[2])
        (letter,) = await left(topics.name("dead-letters"))
        assert letter.value == phone[:-1]
        assert ("topic", apps.encode()) in letter.headers
        await engine.stop()
