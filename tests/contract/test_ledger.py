"""The recorder's port to SQL, on both databases: what it writes, refuses, and forgets."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import func, select, update

from catalog.models import (
    AuthenticationTrace,
    DetectionTrace,
    Device,
    Presence,
    Reception,
    ReplacedTopic,
    Statistic,
)
from catalog.models import StatisticDevice as StatisticDeviceModel
from engine.kafka.detections import BeaconKey
from engine.kafka.positions import Position
from engine.recorder.errors import AlreadyCountedError, CompanyDeletedError
from engine.recorder.ledger import Ledger
from engine.recorder.retention import (
    DAYS_AHEAD,
    MOST_SKEW,
    Retention,
    RetentionStore,
    RetentionWindow,
)
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
    ReceptionRow,
    StatisticDeviceRow,
    StatisticKey,
)
from tests.contract.ledgers import Scene, move_position, next_offsets, open_scene

NOW = datetime(2026, 11, 20, 10, 30, 15, 123000, tzinfo=UTC)
TODAY = NOW.date()
TOPIC = "t.detections"


@pytest.fixture
async def scene(database_url: str) -> AsyncIterator[Scene]:
    async with open_scene(database_url) as scene:
        yield scene


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
            members = {StatisticDeviceRow(TODAY, VENUE, n, 1) for n in range(9)}
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


def reception(notification: UUID, at: datetime = NOW) -> ReceptionRow:
    return ReceptionRow(notification, 1, 2, at)


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
                {StatisticDeviceRow(*key, member) for member in members}
                | {StatisticDeviceRow(*tomorrow, 1)},
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


async def test_retention_keeps_the_last_days(scene: Scene):
    days = [TODAY - timedelta(days=age) for age in (40, 3, 2, 0)]
    await fill(scene, days)
    await retention(scene).run_once()
    kept = {TODAY - timedelta(days=2), TODAY}
    async with scene.database.read() as session:
        for model in (DetectionTrace, AuthenticationTrace, Reception, Presence):
            instants = (await session.scalars(select(model.create_on))).all()
            assert {instant.date() for instant in instants} == kept, model
        # A record that waited for a recorder may still be counted for a day before.
        guarded = kept | {TODAY - timedelta(days=3)}
        assert set(await session.scalars(select(StatisticDeviceModel.day))) == guarded
        assert await session.scalar(select(func.count()).select_from(Statistic)) == len(days)


@pytest.mark.parametrize("server", ["sql", "redis"])
@pytest.mark.parametrize("ahead", [timedelta(days=32), timedelta(days=-32)])
async def test_nothing_is_deleted_while_a_clock_is_wrong(
    scene: Scene, server: str, ahead: timedelta
):
    """Of this process, of SQL, of Redis: whichever it is, two of them are far from each other."""
    await fill(scene, [TODAY - timedelta(days=40), TODAY])
    wrong = {"redis": NOW + ahead} if server == "redis" else {"ours": NOW + ahead}
    await retention(scene, **wrong).run_once()
    for model in (DetectionTrace, AuthenticationTrace, Reception, Presence, StatisticDeviceModel):
        assert await count(scene, model) == 2, model
    slow = Retention(
        StoreAt(scene.store, NOW),
        days=2,
        max_age=600.0,
        clock=iter([NOW - MOST_SKEW, NOW + MOST_SKEW] * 2).__next__,  # the answer took long
        clocks={},
    )
    await slow.run_once()
    assert await count(scene, Reception) == 1


async def test_what_guards_against_repeats_is_kept_by_when_it_was_recorded(scene: Scene):
    """However old or new the detections say that they are."""
    instants = [datetime(1, 1, 1, tzinfo=UTC), NOW, datetime(9999, 12, 31, tzinfo=UTC)]
    ids = [uuid4() for _ in instants]
    async with scene.ledger.transaction() as transaction:
        await transaction.add_receptions(
            [reception(*each) for each in zip(ids, instants, strict=True)]
        )
        for number, at in enumerate(instants):
            await transaction.set_presences({PresenceKey(1, number): PresenceState("far", at)})
        now = await transaction.now()
    await retention(scene, sql=now + timedelta(days=2), ours=now + timedelta(days=2)).run_once()
    async with scene.ledger.transaction() as transaction:
        assert await transaction.counted_notifications(ids) == set(ids)
    assert await count(scene, Presence) == 3
    await retention(scene, sql=now + timedelta(days=4), ours=now + timedelta(days=4)).run_once()
    assert await count(scene, Reception) == await count(scene, Presence) == 0


async def test_no_trace_is_kept_for_ever(scene: Scene):
    """Not even one of a day that never comes."""
    await fill(scene, [TODAY])
    for far in (NOW + timedelta(days=DAYS_AHEAD + 1), datetime(9999, 12, 31, tzinfo=UTC)):
        async with scene.ledger.transaction() as transaction:
            await transaction.add_detections([DetectionRow(1, 2, 3, "near", far, None)])
            await transaction.add_authentications([AuthenticationRow(1, 4, far, None)])
    await retention(scene).run_once()
    for model in (DetectionTrace, AuthenticationTrace):
        assert await count(scene, model) == 1, model


async def test_sql_tells_its_time(scene: Scene):
    begin = datetime.now(UTC)
    async with scene.ledger.transaction() as transaction:
        told = [await transaction.now(), await scene.store.now()]
    minute = timedelta(minutes=1)
    assert all(begin - minute < each < datetime.now(UTC) + minute for each in told)
    assert {each.utcoffset() for each in told} == {timedelta()}


class StoreAt:
    """A store whose clock stands still."""

    def __init__(self, store: RetentionStore, now: datetime) -> None:
        self._store = store
        self._now = now

    async def now(self) -> datetime:
        return self._now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def retention(
    scene: Scene, *, sql: datetime = NOW, ours: datetime = NOW, redis: datetime = NOW
) -> Retention:
    """Two days are kept. The clocks stand still; that of Redis agrees with ours if not told."""
    if redis is NOW:
        redis = ours

    async def redis_clock() -> datetime:
        return redis

    store: Any = StoreAt(scene.store, sql)
    return Retention(
        store, days=2, max_age=600.0, clock=lambda: ours, clocks={"redis": redis_clock}
    )


async def fill(scene: Scene, days: list[date]) -> None:
    """A row of each kind for each day, made and recorded on it."""
    for number, day in enumerate(days):
        at = datetime.combine(day, NOW.timetz())
        async with scene.ledger.transaction() as transaction:
            await transaction.add_detections([DetectionRow(1, 2, 3, "near", at, None)])
            await transaction.add_authentications([AuthenticationRow(1, 4, at, None)])
            await transaction.add_receptions([reception(uuid4(), at)])
            await transaction.set_presences({PresenceKey(1, number): PresenceState("far", at)})
            figure = StatisticKey(day, VENUE, 1)
            await transaction.add_statistics(
                {figure: FigureIncrements(1)}, {StatisticDeviceRow(*figure, 1)}
            )
    async with scene.database.write() as session, session.begin():
        for model in (Reception, Presence):
            await session.execute(update(model).values(recorded_on=model.create_on))


async def test_days_are_made_once_whoever_makes_them(scene: Scene):
    first, last = TODAY - timedelta(days=1), TODAY + timedelta(days=DAYS_AHEAD)
    await fill(scene, [TODAY])
    made = await asyncio.gather(*(scene.store.create_days(first, last) for _ in range(3)))
    expected = 2 * 5 if scene.database.dialect == "postgresql" else 0
    assert sum(made) == expected
    assert await count(scene, DetectionTrace) == 1
    limit = datetime.combine(TODAY + timedelta(days=1), datetime.min.time(), UTC)
    await scene.store.delete_outside(RetentionWindow(limit, limit + timedelta(days=9), TODAY))
    assert await count(scene, DetectionTrace) == 0


async def devices(scene: Scene) -> dict[str, tuple[int, int]]:
    async with scene.database.read() as session:
        found = await session.scalars(select(Device).where(Device.company_id == scene.company.id))
        return {each.udid: (each.nb_beacon, each.nb_campaign) for each in found}


async def count(scene: Scene, model: type) -> int:
    async with scene.database.read() as session:
        return await session.scalar(select(func.count()).select_from(model)) or 0
