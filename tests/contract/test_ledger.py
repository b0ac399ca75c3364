"""The recorder's port to SQL, on both databases: what it writes and what it refuses."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import select

from catalog.models import (
    AuthenticationTrace,
    DetectionTrace,
    Device,
    Reception,
    ReplacedTopic,
    Statistic,
)
from engine.kafka.detections import BeaconKey
from engine.kafka.positions import Position
from engine.recorder.errors import AlreadyCountedError, CompanyDeletedError
from engine.recorder.ledger import Ledger
from engine.recorder.rows import (
    BEACON,
    VENUE,
    AuthenticationRow,
    DetectionRow,
    DeviceChanges,
    DeviceIdentity,
    FigureIncrements,
    PresenceKey,
    PresenceState,
    StatisticKey,
)
from tests.contract.ledgers import NOW, Scene, count, move_position, next_offsets, reception

TODAY = NOW.date()
TOPIC = "t.detections"


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
    """The offset goes with the id of the topic that it is of."""
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


async def test_of_two_at_once_one_moves_it(scene: Scene):
    assert sorted(await asyncio.gather(*(advance(scene.ledger, None, n) for n in (5, 6)))) == [
        False,
        True,
    ]


async def test_a_transaction_that_fails_moves_and_writes_nothing(scene: Scene):
    key = DeviceIdentity(scene.company.id, "phone")

    async def fail() -> None:
        async with scene.ledger.transaction() as transaction:
            assert await transaction.advance_offset(TOPIC, 3, None, 5)
            await transaction.add_devices({key: DeviceChanges(nb_beacon=1)}, NOW)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    assert await next_offsets(scene.ledger, TOPIC) == {}
    assert await devices(scene) == {"of-the-team": (0, 0)}


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
    expected = (scene.beacon.id, scene.venue.id, scene.company.id, "Europe/Paris")
    assert found == {keys[0]: expected}


async def test_devices_are_created_and_added_to(scene: Scene):
    ours = DeviceIdentity(scene.company.id, "phone")
    theirs = DeviceIdentity(scene.other.id, "phone")
    tested = DeviceIdentity(scene.company.id, "of-the-team")
    first = DeviceChanges(nb_beacon=2, name="ios", token_push="t", id_connector=-(2**63))
    async with scene.ledger.transaction() as transaction:
        known = await transaction.add_devices(
            {ours: first, theirs: DeviceChanges(nb_beacon=7), tested: DeviceChanges(nb_beacon=1)},
            NOW,
        )
    assert (known[ours].test, known[theirs].test, known[tested].test) == (False, False, True)
    later = NOW + timedelta(hours=1)
    async with scene.ledger.transaction() as transaction:
        again = await transaction.add_devices(
            {ours: DeviceChanges(nb_beacon=1, nb_campaign=3, version="18", model="m")}, later
        )
    assert again == {ours: known[ours]}
    async with scene.database.read() as session:
        device = await session.get_one(Device, known[ours].id)
    assert (device.nb_beacon, device.nb_campaign, device.name, device.version) == (
        3,
        3,
        "ios",
        "18",
    )
    assert (device.token_push, device.model, device.id_connector) == ("t", "m", -(2**63))
    assert (device.create_on, device.update_on) == (NOW, later)


async def test_a_company_that_has_gone_is_told(scene: Scene):
    async def add() -> None:
        async with scene.ledger.transaction() as transaction:
            await transaction.add_devices(
                {DeviceIdentity(999, "phone"): DeviceChanges(nb_beacon=1)}, NOW
            )

    with pytest.raises(CompanyDeletedError):
        await add()


async def test_transactions_with_the_same_devices_wait_for_each_other(scene: Scene):
    keys = [DeviceIdentity(scene.company.id, f"phone {number}") for number in range(50)]

    async def add(order: list[DeviceIdentity]) -> None:
        async with scene.ledger.transaction() as transaction:
            await transaction.add_devices({key: DeviceChanges(nb_beacon=1) for key in order}, NOW)
            figures = {
                StatisticKey(TODAY, VENUE, n): FigureIncrements(n, detections=1) for n in range(9)
            }
            members = {StatisticKey(TODAY, VENUE, n): {1} for n in range(9)}
            await transaction.add_statistics(figures, members)

    await asyncio.gather(*(add(keys if n % 2 else keys[::-1]) for n in range(10)))
    counters = await devices(scene)
    assert [counters[key.udid] for key in keys] == [(10, 0)] * 50
    async with scene.database.read() as session:
        rows = (await session.execute(select(Statistic.detections, Statistic.devices))).all()
    assert [tuple(row) for row in rows] == [(10, 1)] * 9


@pytest.mark.parametrize(
    "at", [NOW, datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)]
)
async def test_traces_take_any_instant(scene: Scene, at: datetime):
    await scene.store.create_days(TODAY, TODAY)
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
    with pytest.raises(AlreadyCountedError):
        async with scene.ledger.transaction() as transaction:
            await transaction.add_receptions([reception(second), reception(first)])
    assert await count(scene, Reception) == 1


async def test_presences_are_replaced(scene: Scene):
    key, unknown = PresenceKey(1, 2), PresenceKey(1, 3)
    for state in (PresenceState("near", NOW), PresenceState("far", NOW + timedelta(minutes=1))):
        async with scene.ledger.transaction() as transaction:
            await transaction.set_presences({key: state})
            await transaction.set_presences({})
        async with scene.ledger.transaction() as transaction:
            assert await transaction.presences({key, unknown}) == {key: state}


async def test_a_device_counts_once_a_day(scene: Scene):
    key = StatisticKey(TODAY, BEACON, 3)
    tomorrow = key._replace(day=TODAY + timedelta(days=1))
    for members in ({1, 2}, {2, 3}):
        async with scene.ledger.transaction() as transaction:
            await transaction.add_statistics(
                {
                    key: FigureIncrements(9, detections=5, notifications=1),
                    tomorrow: FigureIncrements(9),
                },
                {key: members, tomorrow: {1}},
            )
    async with scene.database.read() as session:
        rows = (await session.scalars(select(Statistic).order_by(Statistic.day))).all()
    figures = [(r.day, r.kind, r.ref, r.venue_id, r.detections) for r in rows]
    assert figures == [(TODAY, "beacon", 3, 9, 10), (tomorrow.day, "beacon", 3, 9, 0)]
    assert [(row.devices, row.notifications) for row in rows] == [(3, 2), (1, 0)]


async def test_what_is_looked_up(scene: Scene):
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


async def devices(scene: Scene) -> dict[str, tuple[int, int]]:
    async with scene.database.read() as session:
        found = await session.scalars(select(Device).where(Device.company_id == scene.company.id))
        return {each.udid: (each.nb_beacon, each.nb_campaign) for each in found}


async def test_sql_tells_its_time(scene: Scene):
    begin = datetime.now(UTC)
    async with scene.ledger.transaction() as transaction:
        told = [await transaction.now(), await scene.store.now()]
    minute = timedelta(minutes=1)
    assert all(begin - minute < each < datetime.now(UTC) + minute for each in told)
    assert {each.utcoffset() for each in told} == {timedelta()}
