"""`proximity verify`: what is counted, how it is compared, and the command as a whole."""

import json
import uuid
from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.records_to_delete import RecordsToDelete
from sqlalchemy import text

from catalog.database import Database, open_database
from engine.cli.verify import (
    ApplicationFact,
    DeviceCounts,
    Difference,
    Interval,
    PlaceFact,
    RecordedDevice,
    Recount,
    RecountCatalog,
    count_all,
    differences,
)
from engine.formats.decoders import OwnFormatDecoder
from engine.kafka.detections import BeaconKey, GeofenceKey, Record, TagKey
from rules.geofences import Circle, GeofenceGrid
from tests.cli.proximity import Proximity
from tests.cli.proximity import detection as message
from tests.kafka.records import UUID, detection, record
from tests.servers.schema import make_schema

on_one_database = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
BEGIN = datetime(2026, 11, 20, tzinfo=UTC).timestamp()
CATALOG = RecountCatalog(
    places={
        BeaconKey(UUID, 1, 1): PlaceFact(company_id=1, active=True),
        BeaconKey(UUID, 1, 2): PlaceFact(company_id=2, active=True),
        BeaconKey(UUID, 1, 3): PlaceFact(company_id=1, active=False),
        BeaconKey(UUID, 1, 4): PlaceFact(
            company_id=2, active=True, former_companies=frozenset({1})
        ),
        GeofenceKey(5): PlaceFact(company_id=1, active=True),
        GeofenceKey(6): PlaceFact(company_id=1, active=False),
        TagKey(1, "nfc", "door"): PlaceFact(company_id=1, active=True),
        TagKey(1, "qrcode", "door"): PlaceFact(1, active=True, former_companies=frozenset({1})),
    },
    grids={1: GeofenceGrid([Circle(5, 48.0, 2.0, 500.0), Circle(6, 48.0, 2.0, 50.0)])},
    companies=frozenset({1, 2}),
    applications={
        "good": ApplicationFact(1, active=True, expire_on=None),
        "expired": ApplicationFact(1, active=True, expire_on=datetime(2026, 11, 1, tzinfo=UTC)),
        "off": ApplicationFact(1, active=False, expire_on=None),
    },
)

READ = OwnFormatDecoder(path_loss_exponent=2.0).read


LONG_AGO = "2026-11-01T10:00:00+0000"


def recount() -> Recount:
    """Nothing counted yet."""
    retained = Interval(BEGIN, BEGIN + 86_400)
    return Recount(CATALOG, retained=retained, read=READ)


def received(udid: str = "a", minor: int = 1, at: str = "2026-11-20T10:00:00+0000") -> Record:
    """A detection."""
    return record(detection(minor=minor, device={"udid": udid}, detected_at=at))


def at_place(at: str = "2026-11-20T10:00:00+0000", key: str = "good", **place: Any) -> Record:
    """A detection of another place."""
    return record({"device": {"udid": "a"}, "detected_at": at, "api_key": key, **place})


def entered(number: int, transition: str = "enter") -> dict[str, Any]:
    return {"geofence": {"id": number, "transition": transition}}


def scanned(kind: str, value: str = "door") -> dict[str, Any]:
    return {"tag": {"kind": kind, "value": value}}


def near(latitude: float, accuracy: float | None = None) -> dict[str, Any]:
    return {"position": {"latitude": latitude, "longitude": 2, "accuracy": accuracy}}


def sent(
    number: int, udid: str = "a", company: int = 1, at: str = "2026-11-20T10:00:00+0000"
) -> Record:
    """A notification; `number` stands for its id."""
    body: dict[str, Any] = {
        "id": str(uuid.UUID(int=number)),
        "device": {"udid": udid, "name": "longer than in a detection " * 10},
        "detected_at": at,
    }
    body |= {name: {"id": 1} for name in ("campaign", "venue", "beacon")}
    return record(body | {"company": {"id": company}})


def signed_in(
    key: str = "good", udid: str = "a", at: str | None = "2026-11-20T10:00:00+0000"
) -> Record:
    """An authentication."""
    return record({"api_key": key, "device": {"udid": udid}, "authenticated_at": at})


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([received(), received()], {(1, "a"): DeviceCounts(detections=2, traces=2)}),
        ([received(at=LONG_AGO)], {(1, "a"): DeviceCounts(detections=1)}),
        ([received(minor=3)], {(1, "a"): DeviceCounts(uncounted=1)}),
        ([received(minor=9)], {}),
        (
            [received(), received(minor=2)],
            {
                (1, "a"): DeviceCounts(detections=1, traces=1),
                (2, "a"): DeviceCounts(detections=1, traces=1),
            },
        ),
    ],
)
def test_recounted_detections(
    records: list[Record], expected: dict[tuple[int, str], DeviceCounts]
) -> None:
    counting = recount()
    assert count_all(records, counting.add_detection) == 0
    assert counting.devices == expected


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (entered(5), DeviceCounts(traces=1)),
        (entered(5, "exit"), None),
        (entered(6), DeviceCounts(places_uncounted=1)),
        (entered(7), None),
        (scanned("nfc"), DeviceCounts(traces=1)),
        (scanned("nfc", "Door"), None),
        (scanned("qrcode"), DeviceCounts(traces=1, places_contested=1)),
        (scanned("nfc") | {"key": "expired"}, DeviceCounts(places_uncounted=1)),
        (scanned("nfc") | {"key": "never heard of"}, None),
        (near(48.004), DeviceCounts(traces=1)),
        (near(48.0), DeviceCounts(traces=1, places_uncounted=1)),
        (near(48.004, 501.0), None),
        (near(48.005), None),
        (near(48.004) | {"at": LONG_AGO}, None),
    ],
)
def test_recounted_detections_of_other_places(
    place: dict[str, Any], expected: DeviceCounts | None
) -> None:
    counting = recount()
    assert count_all([at_place(**place)], counting.add_detection) == 0
    assert counting.devices == ({} if expected is None else {(1, "a"): expected})


def test_an_edited_geofence_may_explain_the_traces_of_positions() -> None:
    counting = recount()
    counting.catalog = CATALOG._replace(edited=frozenset({1}))
    assert count_all([at_place(**near(48.004)), signed_in()], counting.add_detection) == 1
    nothing = RIGHT._replace(nb_beacon=0, nb_campaign=0, receptions=0, authentications=0)
    for traces in (0, 3):
        (difference,) = found(counting, nothing._replace(traces=traces))
        assert (difference.figure, difference.may_be_edit) == ("detection_trace", True)


def test_notifications_are_counted_once_by_id() -> None:
    counting = recount()
    records = [sent(1), sent(2), sent(1), sent(3, at=LONG_AGO), sent(4, company=3)]
    assert count_all(records, counting.add_notification) == 0
    assert counting.devices == {(1, "a"): DeviceCounts(notifications=3, receptions=2)}


def visited(number: int, type_: str = "enter", at: str = "2026-11-20T10:00:00+0000") -> Record:
    """A presence event; `number` stands for its id."""
    event = {"id": str(uuid.UUID(int=number)), "type": type_, "entered_at": at}
    return record(event | {"company": {"id": 1}, "device": {"udid": "a"}})


def test_enters_and_exits_are_counted_once_by_id() -> None:
    counting = recount()
    records = [visited(1), visited(2, "exit"), visited(1), visited(3, "dwell")]
    assert count_all([*records, visited(4, at=LONG_AGO)], counting.add_presence) == 0
    assert counting.visit_events == {1: 2}
    assert count_all([visited(5, "left")], counting.add_presence) == 1


def test_authentications() -> None:
    counting = recount()
    keys = ["expired", "off", "never heard of"]
    records = [signed_in(), signed_in(at=None), signed_in(at=LONG_AGO), *map(signed_in, keys)]
    assert count_all(records, counting.add_authentication) == 0
    assert counting.devices == {(1, "a"): DeviceCounts(authentications=2, refused=2)}


@pytest.mark.parametrize(
    "value", [None, b"", b"no json", b"{}", b'{"device": {"udid": "a\\u0000"}}']
)
def test_a_malformed_record_counts_nothing(value: bytes | None) -> None:
    counting = recount()
    for add in (counting.add_detection, counting.add_notification, counting.add_authentication):
        assert count_all([record(value)], add) == 1
    assert counting.devices == {}


RIGHT = RecordedDevice(
    id=7,
    company_id=1,
    udid="a",
    nb_beacon=2,
    nb_campaign=1,
    traces=2,
    receptions=1,
    authentications=1,
)


def found(
    counting: Recount, sql: RecordedDevice = RIGHT, partial: Collection[str] = ()
) -> list[Difference]:
    counts = counting.devices.get((sql.company_id, sql.udid), DeviceCounts())
    unknown = counting.unknown_beacons[sql.udid]
    return list(differences(counts, sql, unknown_beacons=unknown, partial=partial))


@pytest.fixture
def counted() -> Recount:
    counting = recount()
    count_all(
        [received(), received(), received(minor=3), received(minor=9)], counting.add_detection
    )
    count_all([sent(1)], counting.add_notification)
    count_all([signed_in(), signed_in("off")], counting.add_authentication)
    return counting


@pytest.mark.parametrize(
    ("field", "figure", "sql", "may_be_edit"),
    [
        ("nb_beacon", "nb_beacon", 1, False),
        ("nb_beacon", "nb_beacon", 4, True),
        ("nb_beacon", "nb_beacon", 5, False),
        ("nb_campaign", "nb_campaign", 0, False),
        ("nb_campaign", "nb_campaign", 2, False),
        ("traces", "detection_trace", 3, True),
        ("receptions", "reception", 2, False),
        ("authentications", "authentication_trace", 2, True),
        ("authentications", "authentication_trace", 3, False),
    ],
)
def test_each_figure_is_compared(
    counted: Recount, field: str, figure: str, sql: int, may_be_edit: bool
) -> None:
    right = getattr(RIGHT, field)
    wrong = RecordedDevice(**(RIGHT._asdict() | {field: sql}))
    assert found(counted, wrong) == [
        Difference(
            company_id=1,
            device_id=7,
            udid="a",
            figure=figure,
            topics=right,
            sql=sql,
            may_be_edit=may_be_edit,
        )
    ]


@pytest.mark.parametrize(
    ("company", "sql", "may_be_edit"), [(1, 2, True), (1, 3, False), (2, 0, True), (2, 1, True)]
)
def test_a_beacon_that_was_another_companys_before(
    company: int, sql: int, may_be_edit: bool
) -> None:
    """Of its two detections each may have counted for either of them, or for nobody."""
    counting = recount()
    count_all([received(minor=4), received(minor=4)], counting.add_detection)
    nothing = RIGHT._replace(nb_campaign=0, receptions=0, authentications=0, traces=None)
    shown = found(counting, nothing._replace(company_id=company, nb_beacon=sql))
    assert [(each.sql, each.may_be_edit) for each in shown] == [(sql, may_be_edit)]


_NOW = "2026-11-20 10:00:00"
_ROWS = (
    "INSERT INTO company (id, name, active, caps, presence, create_on)"
    " VALUES (1, 'alpha', true, '[]', false, '{now}')",
    "INSERT INTO venue (id, company_id, name, address, active) VALUES (1, 1, 'Hall', '-', true)",
    "INSERT INTO beacon (id, venue_id, name, uuid, major, minor, active, proximity) VALUES "
    "(1, 1, 'door', 'b5c4a7e0-6f0d-4c8e-9d5a-2c1f7a9e4b10', 1, 2, true, 'far')",
    "INSERT INTO device (id, company_id, udid, nb_beacon, nb_campaign, test, create_on, update_on)"
    " VALUES (5, 1, 'a', 3, 0, false, '{now}', '{now}')",
)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    await make_schema(database_url)
    opened = open_database(database_url)
    async with opened.engine.begin() as connection:
        for row in _ROWS:
            await connection.execute(text(row.format(now=_NOW)))
    yield opened
    await opened.close()


def command(path: Path, bootstrap: str, topic_prefix: str, database_url: str) -> Proximity:
    more = {"PROXIMITY_DATABASE_URL": database_url, "PROXIMITY_TRACE": "none"}
    return Proximity(path, bootstrap, topic_prefix, **more)


@pytest.fixture
def proximity(
    tmp_path: Path, embedded_kafka: str, topic_prefix: str, database_url: str
) -> Proximity:
    made = command(tmp_path, embedded_kafka, topic_prefix, database_url)
    made.mention("detections", "notifications", "authentications")
    return made


@pytest.fixture
def real_proximity(
    tmp_path: Path, kafka_bootstrap: str, topic_prefix: str, database_url: str
) -> Proximity:
    return command(tmp_path, kafka_bootstrap, topic_prefix, database_url)


async def recorded(proximity: Proximity, database: Database, *udids: str) -> None:
    """Publish a detection of each, and store offsets after all of them."""
    lines = b"\n".join(message(udid) for udid in udids)
    assert proximity("publish", "-", given=lines).returncode == 0
    ends: dict[int, int] = {}
    for each in await proximity.records("detections"):
        ends[each.partition] = each.offset + 1
    topic = f"{proximity.topic_prefix}detections"
    async with database.engine.begin() as connection:
        for partition, end in ends.items():
            await connection.execute(
                text("INSERT INTO recorder_offset VALUES (:topic, :partition, :end, NULL)"),
                {"topic": topic, "partition": partition, "end": end},
            )


async def test_equal(proximity: Proximity, database: Database) -> None:
    await recorded(proximity, database, "a", "a", "a")
    done = proximity("verify")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [
        "compared 1 devices with 3 records (0 of them malformed)",
        "no differences",
    ]


async def test_differences_are_shown_and_are_a_failure(
    proximity: Proximity, database: Database
) -> None:
    await recorded(proximity, database, "a", "a", "a", "a", "b")
    done = proximity("verify")
    assert done.returncode == 1
    header, *lines = [line.split() for line in done.stdout.splitlines()]
    assert header == ["company", "device", "udid", "figure", "topics", "SQL"]
    assert lines == [
        ["1", "5", "a", "nb_beacon", "4", "3"],
        ["1", "missing", "b", "nb_beacon", "1", "0"],
    ]
    assert done.stderr.splitlines()[-1] == "proximity: 2 differences"
    done = proximity("verify", "--json")
    found = {(e["udid"], e["topics"], e["sql"]) for e in map(json.loads, done.stdout.splitlines())}
    assert found == {("a", 4, 3), ("b", 1, 0)}


async def test_visit_events_that_no_record_explains(
    proximity: Proximity, database: Database
) -> None:
    await recorded(proximity, database, "a", "a", "a")
    async with database.engine.begin() as connection:
        row = f"('{uuid.uuid4().hex}', 1, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)"
        await connection.execute(text(f"INSERT INTO visit_event VALUES {row}"))
    done = proximity("verify")
    assert done.returncode == 1
    assert done.stdout.splitlines()[1].split() == ["1", "all", "visit_event", "0", "1"]


@on_one_database
async def test_a_recorder_that_never_ran(proximity: Proximity, database: Database) -> None:
    assert proximity("publish", "-", given=message("a")).returncode == 0
    done = proximity("verify")
    assert done.returncode == 1
    assert "no recorder has recorded anything of these topics in this database" in done.stderr


@on_one_database
async def test_figures_of_topics_that_are_no_more(proximity: Proximity, database: Database) -> None:
    """As after `run --embedded` was started again: SQL has more, and that is no difference."""
    topic = f"{proximity.topic_prefix}detections"
    async with database.engine.begin() as connection:
        await connection.execute(
            text("INSERT INTO recorder_past VALUES (:topic, '2026-11-20 10:00:00')"),
            {"topic": topic},
        )
    done = proximity("verify")
    assert done.returncode == 0, done.stderr
    assert f"another topic {topic} was recorded before this one" in done.stderr
    await recorded(proximity, database, "a", "a", "a", "a")
    done = proximity("verify")  # three are in SQL: one is missing for certain
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "proximity: 1 differences"


@on_one_database
async def test_more_than_an_edit_of_the_catalog_explains(
    proximity: Proximity, database: Database
) -> None:
    await recorded(proximity, database, "a", "a", "a")
    async with database.engine.begin() as connection:
        await connection.execute(text("UPDATE beacon SET active = false"))
    done = proximity("verify")
    assert done.returncode == 0
    assert "an edit of the catalog may explain it" in done.stdout
    assert done.stderr.splitlines()[-1] == (
        "no differences but 1 that later edits of the catalog may explain "
        "(--strict makes them a failure)"
    )
    done = proximity("verify", "--strict")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "proximity: 1 differences, 1 of them perhaps edits"


@on_one_database
async def test_an_offset_that_the_topic_does_not_have(
    proximity: Proximity, database: Database
) -> None:
    await recorded(proximity, database, "a", "a", "a")
    async with database.engine.begin() as connection:
        await connection.execute(text("UPDATE recorder_offset SET next_offset = 100"))
    done = proximity("verify")
    assert done.returncode == 1
    assert "SQL has recorded up to 100, but the topic ends at 3" in done.stderr


@on_one_database
@pytest.mark.parametrize(("counted", "status"), [(3, 0), (0, 1)])
async def test_without_its_beginning_a_topic_shows_only_what_sql_lacks(
    real_proximity: Proximity, database: Database, counted: int, status: int
) -> None:
    proximity = real_proximity
    topic = f"{proximity.topic_prefix}detections"
    admin = AIOKafkaAdminClient(bootstrap_servers=proximity.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1)])
        await recorded(proximity, database, "a", "a", "a")
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=2)})
    finally:
        await admin.close()
    async with database.engine.begin() as connection:
        await connection.execute(text("UPDATE device SET nb_beacon = :n"), {"n": counted})
    done = proximity("verify")
    assert done.returncode == status, done.stdout + done.stderr
    assert f"{topic}/0 begins at 2: what was before is gone" in done.stderr


@on_one_database
async def test_a_topic_that_returned_with_fewer_partitions(
    real_proximity: Proximity, database: Database
) -> None:
    """Its other partitions will never be recorded again: that is a note, and no failure."""
    proximity = real_proximity
    topic = f"{proximity.topic_prefix}detections"
    admin = AIOKafkaAdminClient(bootstrap_servers=proximity.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1)])
        await recorded(proximity, database, "a", "a", "a")
    finally:
        await admin.close()
    async with database.engine.begin() as connection:
        await connection.execute(
            text("INSERT INTO recorder_offset VALUES (:topic, 3, 500, :id)"),
            {"topic": topic, "id": "0" * 31 + "1"},
        )
    done = proximity("verify")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert f"another topic {topic} was recorded before this one" in done.stderr
    assert done.stderr.splitlines()[-1] == "no differences"
