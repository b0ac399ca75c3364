"""`proximity verify`: what is counted, how it is compared, and the command as a whole."""

import json

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from sqlalchemy import text

from catalog.database import Database
from catalog.models import Device
from engine.cli.verify import BeaconFact, Difference, Recount
from engine.formats.decoders import OwnFormatDecoder
from engine.kafka.detections import BeaconKey, Record
from engine.redis.devices import DeviceKey
from tests.catalog.records import NOON, Records
from tests.cli.given import detection as message
from tests.kafka.records import UUID, detection, record
from tests.servers.proximity import Rig
from tests.servers.schema import on_sqlite
from tests.system.topics import Message, TopicSet

BEACONS = {
    BeaconKey(UUID, 1, 1): BeaconFact(company_id=1, active=True),
    BeaconKey(UUID, 1, 2): BeaconFact(company_id=2, active=True),
    BeaconKey(UUID, 1, 3): BeaconFact(company_id=1, active=False),
    BeaconKey(UUID, 1, 4): BeaconFact(company_id=2, active=True, is_reused=True),
}

PUBLISHED = "b5c4a7e0-6f0d-4c8e-9d5a-2c1f7a9e4b10"


def received(udid: str = "a", minor: int = 1) -> Record:
    """A detection."""
    return record(detection(minor=minor, device={"udid": udid}))


@pytest.mark.parametrize(
    ("given", "company", "counted", "doubts"),
    [
        (received(), 1, 1, 0),
        (received(minor=2), 2, 1, 0),
        (received(minor=3), 1, 0, 1),
        (received(minor=4), 2, 1, 1),
        (received(minor=9), 1, 0, 1),
        (record({"geofence": {"id": 5, "transition": "enter"}, "device": {"udid": "a"}}), 1, 0, 0),
    ],
)
async def test_recounted_detections(given: Record, company: int, counted: int, doubts: int) -> None:
    counting = Recount(BEACONS, {1, 2})
    await counting.add([given], OwnFormatDecoder(path_loss_exponent=2.0))
    assert counting.malformed == 0
    assert counting.counts["nb_beacon"][DeviceKey(company, "a")] == counted
    assert counting.doubts["a"] == doubts


@pytest.fixture
async def database(database: Database) -> Database:
    records = Records()
    company = records.company()
    counted = {"nb_beacon": 3, "create_on": NOON, "update_on": NOON}
    async with database.write.begin() as session:
        session.add(records.beacon(records.venue(company), uuid=PUBLISHED, minor=2))
        session.add(Device(id=5, company=company, udid="a", **counted))
    return database


@pytest.fixture
def proximity(proximity: Rig, topics: TopicSet, database_url: str) -> Rig:
    proximity.settings |= {"DATABASE_URL": database_url, "TRACE": "none"}
    topics.mention("notifications", "authentications")
    return proximity


async def recorded(
    topics: TopicSet, database: Database, *udids: str, replaced: bool = False
) -> None:
    """Publish a detection of each, and store offsets after all of them."""
    await topics.publish(Message(udid.encode(), message(udid)) for udid in udids)
    ends: dict[int, int] = {}
    for each in await topics.read("detections"):
        ends[each.partition] = each.offset + 1
    topic = topics.name("detections")
    rows = (f"('{topic}', {partition}, {end}, NULL, {replaced})" for partition, end in ends.items())
    await execute(database, "DELETE FROM recorder_offset")
    await execute(database, f"INSERT INTO recorder_offset VALUES {', '.join(rows)}")


async def execute(database: Database, statement: str) -> None:
    async with database.engine.begin() as connection:
        await connection.execute(text(statement))


async def test_differences_are_shown_and_are_a_failure(
    proximity: Rig, topics: TopicSet, database: Database
) -> None:
    await recorded(topics, database, "a", "a", "a")
    done = proximity("verify")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        "compared 1 devices with 3 records (0 of them malformed)",
        "no differences",
    ]
    await recorded(topics, database, "a", "b")
    await execute(database, "UPDATE device SET nb_campaign = 1")
    done = proximity("verify")
    assert done.returncode == 1
    header, *lines = [line.split() for line in done.stdout.splitlines()]
    assert header == [*Difference._fields]
    assert lines == [
        ["1", "5", "a", "nb_beacon", "4", "3", "False"],
        ["1", "5", "a", "nb_campaign", "0", "1", "False"],
        ["1", "-", "b", "nb_beacon", "1", "0", "False"],
    ]
    assert done.stderr.splitlines()[-1] == "proximity: 3 differences"
    done = proximity("verify", "--json")
    found = {(e["udid"], e["topics"], e["sql"]) for e in map(json.loads, done.stdout.splitlines())}
    assert found == {("a", 4, 3), ("a", 0, 1), ("b", 1, 0)}


@on_sqlite
async def test_figures_of_topics_that_are_no_more(
    proximity: Rig, topics: TopicSet, database: Database
) -> None:
    """As after `run --embedded` was started again: SQL has more, and that is no difference."""
    done = proximity("verify")
    assert done.returncode == 1
    assert "no recorder has recorded anything of these topics in this database" in done.stderr
    topic = topics.name("detections")
    await recorded(topics, database, "a", "a", replaced=True)
    done = proximity("verify")
    assert done.returncode == 0, done.stderr
    assert f"another topic {topic} was recorded before this one" in done.stderr
    await recorded(topics, database, "a", "a", replaced=True)
    done = proximity("verify")  # three are in SQL: one is missing for certain
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "proximity: 1 differences"


@on_sqlite
async def test_more_than_an_edit_of_the_catalog_explains(
    proximity: Rig, topics: TopicSet, database: Database
) -> None:
    await recorded(topics, database, "a", "a", "a")
    await execute(database, "UPDATE beacon SET active = false")
    done = proximity("verify")
    assert done.returncode == 0
    assert done.stdout.endswith("  True\n")
    assert done.stderr.splitlines()[-1].startswith("no differences but 1 that later edits of")
    done = proximity("verify", "--strict")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "proximity: 1 differences, 1 of them perhaps edits"


@on_sqlite
async def test_without_its_beginning_a_topic_shows_only_what_sql_lacks(
    rig: Rig,
    admin: AIOKafkaAdminClient,
    kafka_bootstrap: str,
    topic_prefix: str,
    database_url: str,
    database: Database,
) -> None:
    """Nor does one that returned with fewer partitions, whose others are never recorded again."""
    rig.settings |= {"KAFKA_BOOTSTRAP_SERVERS": kafka_bootstrap, "TOPIC_PREFIX": topic_prefix}
    rig.settings |= {"DATABASE_URL": database_url, "TRACE": "none"}
    topics = TopicSet(kafka_bootstrap, topic_prefix, topic_prefix, partitions=1)
    topic = topics.name("detections")
    await topics.create()
    await recorded(topics, database, "a", "a", "a")
    of_another = f"INSERT INTO recorder_offset VALUES ('{topic}', 3, 500, '{1:032}', false)"
    await execute(database, of_another)
    done = rig("verify")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert f"another topic {topic} was recorded before this one" in done.stderr
    await execute(database, "DELETE FROM recorder_offset WHERE partition = 3")
    await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=2)})
    for counted, status in ((3, 0), (0, 1)):
        await execute(database, f"UPDATE device SET nb_beacon = {counted}")
        done = rig("verify")
        assert done.returncode == status, done.stdout + done.stderr
        assert f"{topic}/0 begins at 2: what was before is gone" in done.stderr
