"""Topics of three formats, from the report to SQL, `verify`, `replay` and the dead letters."""

import base64
import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer
from sqlalchemy import select

from catalog.database import open_database
from catalog.models import Beacon, Device
from tests.formats import registered
from tests.servers.schema_registry import schema_registry
from tests.servers.waiting import eventually
from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.world import World

EVENT = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"1"),
    ("ce_source", b"/hall"),
    ("ce_type", b"org.example.detection"),
]
BATCH = [("content-type", b"application/cloudevents-batch+json")]
NOW = datetime.now(UTC).replace(microsecond=0)


def report(*beacons: Beacon) -> bytes:
    """A Minew gateway's report about these beacons and an unknown one."""
    at = NOW.isoformat().replace("+00:00", "Z")
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
        for beacon in beacons
    ]
    gateway = {"timestamp": at, "type": "Gateway", "mac": "AC23"}
    stranger = {"timestamp": at, "type": "Unknown", "mac": "1918", "rssi": -70}
    return json.dumps([gateway, *received, stranger]).encode()


def detection(beacon: Beacon, udid: str) -> dict[str, Any]:
    triple = {"uuid": beacon.uuid, "major": beacon.major, "minor": beacon.minor}
    return triple | {"rssi": -50, "device": {"udid": udid}}


def batch(first: dict[str, Any], second: dict[str, Any]) -> bytes:
    """CloudEvents of two detections, the second one in base64."""
    event = {"specversion": "1.0", "id": "1", "source": "/hall", "type": "t"}
    encoded = base64.b64encode(json.dumps(second).encode()).decode()
    return json.dumps([event | {"data": first}, event | {"data_base64": encoded}]).encode()


async def counters(url: str) -> dict[str, tuple[int, int]]:
    """nb_beacon and nb_campaign by udid."""
    database = open_database(url)
    async with database.read() as session:
        columns = select(Device.udid, Device.nb_beacon, Device.nb_campaign)
        rows = (await session.execute(columns)).all()
    await database.close()
    return {udid: (beacons, campaigns) for udid, beacons, campaigns in rows}


async def test_three_formats_from_end_to_end(
    rig: Rig,
    kafka_bootstrap: str,
    topic_prefix: str,
    redis_url: str,
    sqlite_url: str,
    tmp_path: Path,
) -> None:
    world = World(NOW)
    venue = world.venue(world.company("alpha"), "Hall")
    plans = [world.beacon(venue, minor) for minor in (4, 6)]
    world.campaign(venue, "welcome", plans, delay=86_400)
    first, second = (plan.record for plan in plans)
    await world.save(sqlite_url)
    topics = TopicSet(kafka_bootstrap, topic_prefix, "none", partitions=2)
    minew, apps, avro = (topics.name(name) for name in ("minew", "apps", "avro"))
    async with schema_registry({7: registered.AVRO}) as registry:
        rig.environment |= {
            "REDIS_URL": redis_url,
            "DATABASE_URL": sqlite_url,
            "TOPIC_PARTITIONS": "2",
            "DETECTION_TOPICS": f"{minew}=minew,{apps}=cloudevents+own,{avro}=avro",
            "SCHEMA_REGISTRY_URL": registry.url(),
        }
        engine = rig.start("run")
        await engine.until_ready()
        phone = json.dumps(detection(first, "phone")).encode()
        message = registered.avro(detection(first, "tablet") | {"detected_at": NOW})
        both = batch(detection(first, "phone"), detection(second, "phone"))
        async with AIOKafkaProducer(bootstrap_servers=kafka_bootstrap) as producer:
            for topic, value, headers in (
                (minew, report(first, second, first), []),
                (apps, phone, EVENT),
                (apps, phone[:-1], EVENT),  # cut off: a dead letter
                (apps, both, BATCH),
                (avro, registered.framed(7, message), []),
                (topics.name("detections"), phone, []),
            ):
                await producer.send_and_wait(topic, value, key=b"hall", headers=headers)
        expected = {"gateway:AC23": (3, 1), "phone": (4, 1), "tablet": (1, 1)}

        async def recorded() -> bool:
            return await counters(sqlite_url) == expected

        await eventually(recorded, what=f"{expected} are recorded, see {engine.log}")
        verify = rig.start("verify")
        assert await verify.ended() == 0, verify.output
        assert "(1 of them malformed)" in verify.output
        assert "no differences" in verify.output
        written = tmp_path / "sent.csv"
        replay = rig.start("replay", "--sends", str(written))
        assert await replay.ended() == 0, replay.output
        assert "replayed 8 detections" in replay.output
        await engine.stop()

    sent = [json.loads(each.value or b"") for each in await topics.read("notifications")]
    live = sorted((each["device"]["udid"], each["id"]) for each in sent)
    with written.open(encoding="utf-8") as stream:
        replayed = sorted((row["udid"], row["id"]) for row in csv.DictReader(stream))
    assert [udid for udid, _ in replayed] == [udid for udid, _ in live] == sorted(expected)
    # (The phone was detected on two topics, which have no order.)
    assert (replayed[0], replayed[2]) == (live[0], live[2])
    (letter,) = await topics.read("dead-letters")
    assert letter.value == phone[:-1]
    assert ("topic", apps.encode()) in letter.headers
