"""The recorder's port to SQL, on both databases: what it writes and what it refuses."""

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select, text

from catalog.models import (
    AuthenticationTrace,
    DetectionTrace,
    Device,
    Reception,
    ReplacedTopic,
)
from engine.kafka.detections import BeaconKey
from engine.kafka.offsets import Position
from engine.recorder.ledger import (
    ActivePlace,
    AuthenticationRow,
    DetectionRow,
    DeviceChanges,
    DeviceIdentity,
    Ledger,
    ReceptionRow,
    WriteAgainError,
)
from tests.recorder.scene import NOW, Scene, count, next_offsets
from tests.servers.waiting import eventually

TODAY = NOW.date()
TOPIC = "t.detections"


def reception(notification: UUID) -> ReceptionRow:
    return ReceptionRow(notification, 1, 2, NOW)


def changes(identity: DeviceIdentity, **fields: Any) -> dict[DeviceIdentity, DeviceChanges]:
    return {identity: DeviceChanges(*identity, **fields)}


async def move_position(
    ledger: Ledger, topic: str, partition: int, old: Position | None, new: Position
) -> bool:
    async with ledger.transaction() as transaction:
        return await transaction.move_position(topic, partition, old, new)


async def advance(ledger: Ledger, old: int | None, new: int) -> bool:
    async with ledger.transaction() as transaction:
        return await transaction.advance_offset(TOPIC, 3, old, new)


async def test_an_offset_moves_only_from_the_value_that_is_known(scene: Scene):
    ledger = scene.ledger
    assert await advance(ledger, None, 5)
    assert not await advance(ledger, None, 7)
    assert not await advance(ledger, 4, 7)
    assert await advance(ledger, 5, 9)
    assert not await advance(ledger, 5, 12)
    assert await next_offsets(ledger, TOPIC) == {3: 9}
    assert await next_offsets(ledger, "t.notifications") == {}


async def test_a_place_moves_only_from_what_is_known(scene: Scene):
    """The offset is stored with the id of its topic."""
    ledger, old, new = scene.ledger, Position(7, "a" * 32), Position(0, "b" * 32)
    assert await move_position(ledger, TOPIC, 3, None, old)
    assert not await move_position(ledger, TOPIC, 3, None, new)
    assert await advance(ledger, 7, 9)
    assert await ledger.positions(TOPIC) == {3: Position(9, "a" * 32)}
    for wrong in (old, Position(9, None), Position(9, "b" * 32)):
        assert not await move_position(ledger, TOPIC, 3, wrong, new)
    assert await move_position(ledger, TOPIC, 3, Position(9, "a" * 32), new)
    assert await ledger.positions(TOPIC) == {3: new}
    assert await next_offsets(ledger, TOPIC) == {3: 0}
    assert await past(scene) == {TOPIC}  # `verify` has to know


async def test_a_place_whose_topic_is_not_known_learns_it(scene: Scene):
    """As rows of an older version."""
    ledger = scene.ledger
    assert await advance(ledger, None, 5)
    assert await ledger.positions(TOPIC) == {3: Position(5, None)}
    assert not await move_position(ledger, TOPIC, 3, Position(5, "a" * 32), Position(5, "b" * 32))
    assert await move_position(ledger, TOPIC, 3, Position(5, None), Position(5, "a" * 32))
    assert await ledger.positions(TOPIC) == {3: Position(5, "a" * 32)}
    assert await past(scene) == set()


async def past(scene: Scene) -> set[str]:
    async with scene.database.autocommit() as session:
        return set(await session.scalars(select(ReplacedTopic.topic)))


async def test_places_are_those_of_active_beacons_at_active_venues(scene: Scene):
    records = scene.records
    closed = records.venue(scene.company, active=False)
    off = records.beacon(scene.venue, active=False)
    elsewhere = records.beacon(closed)
    async with scene.database.write() as session, session.begin():
        session.add_all([closed, off, elsewhere])
    keys = [BeaconKey(b.uuid, b.major, b.minor) for b in (scene.beacon, off, elsewhere)]
    unknown = BeaconKey(scene.beacon.uuid, 1, 65535)
    async with scene.ledger.transaction() as transaction:
        found = await transaction.active_beacons([*keys, unknown])
        assert await transaction.active_beacons([]) == {}
    expected = ActivePlace(scene.beacon.id, scene.venue.id, scene.company.id, "Europe/Paris")
    assert found == {keys[0]: expected}


async def test_devices_are_created_and_added_to(scene: Scene):
    ours = (scene.company.id, "phone")
    theirs = (scene.other.id, "phone")
    tested = (scene.company.id, "of-the-team")
    first = changes(ours, nb_beacon=2, name="ios", token_push="t", id_connector=-(2**63))
    first[ours].time_zone = "Asia/Tokyo"
    async with scene.ledger.transaction() as transaction:
        known = await transaction.add_devices(
            first | changes(theirs, nb_beacon=7) | changes(tested, nb_beacon=1)
        )
    assert (known[ours][1], known[theirs][1], known[tested][1]) == (False, False, True)
    async with scene.ledger.transaction() as transaction:
        again = await transaction.add_devices(
            changes(ours, nb_beacon=1, nb_campaign=3, version="18", model="m")
        )
    assert again == {ours: known[ours]}
    async with scene.database.read() as session:
        device = await session.get_one(Device, known[ours][0])
    assert (device.nb_beacon, device.nb_campaign, device.name, device.version) == (
        3,
        3,
        "ios",
        "18",
    )
    assert (device.token_push, device.model, device.id_connector) == ("t", "m", -(2**63))
    assert device.time_zone == "Asia/Tokyo"
    assert device.create_on < device.update_on


async def test_traces_take_any_instant(scene: Scene):
    at = datetime(1970, 1, 1, tzinfo=UTC)
    await scene.ledger.create_days([TODAY, at.date()])
    async with scene.ledger.transaction() as transaction:
        await transaction.add_detections([DetectionRow(1, 2, 3, "near", at, "10.0.0.1")] * 2)
        await transaction.add_authentications([AuthenticationRow(1, 4, at, None)])
        await transaction.add_detections([])
    async with scene.database.read() as session:
        traces = (await session.scalars(select(DetectionTrace))).all()
        (signed,) = (await session.scalars(select(AuthenticationTrace))).all()
    assert len({trace.id for trace in traces}) == 2
    trace = traces[0]
    assert (trace.device_id, trace.venue_id, trace.beacon_id, trace.ip) == (1, 2, 3, "10.0.0.1")
    assert (trace.status, trace.create_on) == ("near", at)
    assert (signed.device_id, signed.application_id, signed.create_on) == (1, 4, at)


async def test_a_notification_is_counted_once(scene: Scene):
    first, second = uuid4(), uuid4()
    async with scene.ledger.transaction() as transaction:
        await transaction.add_receptions([reception(first)])
    async with scene.ledger.transaction() as transaction:
        assert await transaction.counted_notifications([first, second]) == {first}
    with pytest.raises(WriteAgainError, match="already_counted"):
        async with scene.ledger.transaction() as transaction:
            await transaction.add_receptions([reception(second), reception(first)])
    assert await count(scene, Reception) == 1


async def test_look_ups(scene: Scene):
    ledger = scene.ledger
    assert await ledger.existing_companies({scene.company.id, 999}) == {scene.company.id}
    assert await ledger.venue_time_zones({scene.venue.id, 999}) == {scene.venue.id: "Europe/Paris"}
    found = await ledger.applications({"key-1", "key-2"})
    assert found == {"key-1": (scene.application.id, scene.company.id, True, None)}
    assert await ledger.existing_companies([]) == set()
    async with scene.database.write() as session, session.begin():
        application = await session.merge(scene.application)
        application.expire_on, application.active = NOW, False
    found = await ledger.applications(["key-1"])
    assert found["key-1"][2:] == (False, NOW)


@pytest.mark.parametrize("turns", [1, 2, 5])
async def test_a_cancelled_transaction_leaves_nothing_behind(scene: Scene, turns: int):
    """Also if it is cancelled again and again while it rolls back."""

    async def move() -> None:
        async with scene.ledger.transaction() as transaction:
            assert await transaction.advance_offset(TOPIC, 0, None, 10)
            under_way.set()
            await asyncio.Event().wait()

    for _ in range(5):  # as many as the pool keeps
        under_way = asyncio.Event()
        task = asyncio.create_task(move())
        await under_way.wait()
        while not task.done():
            task.cancel()
            for _ in range(turns):  # however far the rollback has come
                await asyncio.sleep(0)
        with contextlib.suppress(asyncio.CancelledError):
            await task
    for _ in range(6):
        assert await next_offsets(scene.ledger, TOPIC) == {}
    async with asyncio.timeout(10):
        assert await move_position(scene.ledger, TOPIC, 0, None, Position(7))
    if scene.database.dialect == "postgresql":
        await eventually(lambda: no_transaction_is_idle(scene), what="no session is idle")


async def no_transaction_is_idle(scene: Scene) -> bool:
    query = text("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'")
    async with scene.database.autocommit() as session:
        return bool(await session.scalar(query) == 0)


@pytest.mark.parametrize("turns", [0, 3, 13])
async def test_rows_on_their_way_can_be_cancelled(scene: Scene, turns: int):
    await scene.ledger.create_days([TODAY])
    under_way = asyncio.Event()

    async def write() -> None:
        async with scene.ledger.transaction() as transaction:
            under_way.set()
            row = DetectionRow(1, 2, 3, "near", NOW, "10.0.0.1")
            await transaction.add_detections([row] * 20_000)
            await asyncio.Event().wait()

    task = asyncio.create_task(write())
    await under_way.wait()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(10):
        assert await move_position(scene.ledger, TOPIC, 0, None, Position(7))
    assert await count(scene, DetectionTrace) == 0
