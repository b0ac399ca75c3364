"""Topics of three formats, from the report to SQL, `verify`, `replay` and the dead letters."""

from datetime import UTC, datetime

from aiokafka import AIOKafkaProducer
from sqlalchemy import select

from catalog.models import Device
from tests.formats import registered
from tests.formats.records import EVENT, minew_report
from tests.servers.proximity import Rig
from tests.servers.schema import opened
from tests.servers.schema_registry import SchemaRegistryService
from tests.servers.waiting import eventually
from tests.system.topics import TopicSet
from tests.system.traffic import detection, triple_of
from tests.system.world import World

NOW = datetime.now(UTC).replace(microsecond=0)


async def counters(url: str) -> dict[str, tuple[int, int]]:
    """nb_beacon and nb_campaign by udid."""
    async with opened(url) as database, database.read() as session:
        columns = select(Device.udid, Device.nb_beacon, Device.nb_campaign)
        rows = (await session.execute(columns)).all()
    return {udid: (beacons, campaigns) for udid, beacons, campaigns in rows}


async def test_three_formats_from_end_to_end(
    stores: Rig, topics: TopicSet, sqlite_url: str
) -> None:
    world = World()
    venue = world.venue(world.company("alpha"), "Hall")
    first, second = world.beacon(venue, 4), world.beacon(venue, 6)
    world.campaign(venue, "welcome", [first, second], delay=86_400)
    await world.save(sqlite_url)
    await topics.create()
    minew, apps, avro = (topics.name(name) for name in ("minew", "apps", "avro"))
    async with SchemaRegistryService({7: registered.AVRO}).running() as registry:
        stores.settings |= {
            "DETECTION_TOPICS": f"{minew}=minew,{apps}=cloudevents+own,{avro}=avro",
            "SCHEMA_REGISTRY_URL": registry.address(),
        }
        engine = stores.start("run")
        await engine.until_ready()
        at = NOW.isoformat().replace("+00:00", "Z")
        phone = detection(first, "phone").value or b""
        triple = {"uuid": first.uuid, "major": first.major, "minor": first.minor}
        fields = {"rssi": -50, "device": {"udid": "tablet"}, "detected_at": NOW}
        async with AIOKafkaProducer(bootstrap_servers=topics.bootstrap) as producer:
            for topic, value, headers in (
                (minew, minew_report(at, *map(triple_of, (first, second, first))), []),
                (apps, phone, EVENT),
                (apps, phone[:-1], EVENT),  # cut off: a dead letter
                (avro, registered.framed(7, registered.avro(triple | fields)), []),
                (topics.name("detections"), phone, []),
            ):
                await producer.send_and_wait(topic, value, key=b"hall", headers=headers)
        expected = {"gateway:AC23": (3, 1), "phone": (2, 1), "tablet": (1, 1)}

        async def recorded() -> bool:
            return await counters(sqlite_url) == expected

        await eventually(recorded, what=f"{expected} are recorded, see {engine.log}")
        verify = await stores.verify()
        assert "(1 of them malformed)" in verify.output
        assert "no differences" in verify.output
        replay = stores.start("replay")
        assert await replay.ended() == 0, replay.output
        assert "replayed 6 detections" in replay.output
        await engine.stop()

    bodies = await topics.bodies("notifications")
    assert {each["device"]["udid"] for each in bodies} == expected.keys()
    (letter,) = await topics.read("dead-letters")
    assert letter.value == phone[:-1]
    assert ("topic", apps.encode()) in letter.headers
