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
    RecorderPast,
    Statistic,
)
from catalog.models import StatisticDevice as StatisticDeviceRow
from engine.kafka.detections import BeaconKey
from engine.kafka.positions import Place
from engine.recorder.ledger import AlreadyCountedError, CompanyGoneError, Ledger
from engine.recorder.retention import DAYS_AHEAD, MOST_SKEW, Kept, Retention, Store
from engine.recorder.rows import (
    BEACON,
    VENUE,
    AuthenticationRow,
    DetectionRow,
    DeviceKey,
    DeviceNews,
    Figures,
    PresenceKey,
    PresenceState,
    ReceptionRow,
    StatisticDevice,
    StatisticKey,
)
from tests.contract.ledgers import Scene, open_scene

NOW = datetime(2026, 11, 20, 10, 30, 15, 123000, tzinfo=UTC)
TODAY = NOW.date()
TOPIC = "t.detections"


@pytest.fixture
async def scene(database_url: str) -> AsyncIterator[Scene]:
    async with open_scene(database_url) as scene:
        yield scene


async def advance(ledger: Ledger, old: int | None, new: int) -> bool:
    async with ledger.entry() as entry:
        return await entry.advance(TOPIC, 3, old, new)


async def test_an_offset_moves_only_from_the_value_that_is_known(scene: Scene):
    ledger = scene.ledger
    assert await advance(ledger, None, 5)
    assert not await advance(ledger, None, 7)
    assert not await advance(ledger, 4, 7)
    assert await advance(ledger, 5, 9)
    assert not await advance(ledger, 5, 12)
    assert await ledger.next_offsets(TOPIC) == {3: 9}
    assert await ledger.next_offsets("t.notifications") == {}


async def test_a_place_moves_only_from_what_is_known(scene: Scene):
    """The offset goes with the id of the topic that it is of."""
    ledger, old, new = scene.ledger, Place(7, "a" * 32), Place(0, "b" * 32)
    assert await ledger.move_place(TOPIC, 3, None, old)
    assert not await ledger.move_place(TOPIC, 3, None, new)
    assert await advance(ledger, 7, 9)
    assert await ledger.known_places(TOPIC) == {3: Place(9, "a" * 32)}
    for wrong in (old, Place(9, None), Place(9, "b" * 32)):
        assert not await ledger.move_place(TOPIC, 3, wrong, new)
    assert await ledger.move_place(TOPIC, 3, Place(9, "a" * 32), new)
    assert await ledger.known_places(TOPIC) == {3: new}
    assert await ledger.next_offsets(TOPIC) == {3: 0}
    assert await past(scene) == {TOPIC}  # `verify` has to know


async def test_a_place_whose_topic_is_not_known_learns_it(scene: Scene):
    """As rows of an older version."""
    ledger = scene.ledger
    assert await advance(ledger, None, 5)
    assert await ledger.known_places(TOPIC) == {3: Place(5, None)}
    assert not await ledger.move_place(TOPIC, 3, Place(5, "a" * 32), Place(5, "b" * 32))
    assert await ledger.move_place(TOPIC, 3, Place(5, None), Place(5, "a" * 32))
    assert await ledger.known_places(TOPIC) == {3: Place(5, "a" * 32)}
    assert await past(scene) == set()


async def past(scene: Scene) -> set[str]:
    async with scene.database.autocommit() as session:
        return set(await session.scalars(select(RecorderPast.topic)))


async def test_of_two_at_once_one_moves_it(scene: Scene):
    assert sorted(await asyncio.gather(*(advance(scene.ledger, None, n) for n in (5, 6)))) == [
        False,
        True,
    ]


async def test_a_transaction_that_fails_moves_and_writes_nothing(scene: Scene):
    key = DeviceKey(scene.company.id, "phone")

    async def fail() -> None:
        async with scene.ledger.entry() as entry:
            assert await entry.advance(TOPIC, 3, None, 5)
            await entry.add_devices({key: DeviceNews(nb_beacon=1)}, NOW)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    assert await scene.ledger.next_offsets(TOPIC) == {}
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
    async with scene.ledger.entry() as entry:
        found = await entry.places([*keys, unknown])
        assert await entry.places([]) == {}
    expected = (scene.beacon.id, scene.venue.id, scene.company.id, "Europe/Paris")
    assert found == {keys[0]: expected}


async def test_devices_are_created_and_added_to(scene: Scene):
    ours = DeviceKey(scene.company.id, "phone")
    theirs = DeviceKey(scene.other.id, "phone")
    tested = DeviceKey(scene.company.id, "of-the-team")
    first = DeviceNews(nb_beacon=2, name="ios", token_push="t", id_connector=-(2**63))
    async with scene.ledger.entry() as entry:
        known = await entry.add_devices(
            {ours: first, theirs: DeviceNews(nb_beacon=7), tested: DeviceNews(nb_beacon=1)}, NOW
        )
    assert (known[ours].test, known[theirs].test, known[tested].test) == (False, False, True)
    later = NOW + timedelta(hours=1)
    async with scene.ledger.entry() as entry:
        again = await entry.add_devices(
            {ours: DeviceNews(nb_beacon=1, nb_campaign=3, version="18", model="m")}, later
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
        async with scene.ledger.entry() as entry:
            await entry.add_devices({DeviceKey(999, "phone"): DeviceNews(nb_beacon=1)}, NOW)

    with pytest.raises(CompanyGoneError):
        await add()


async def test_transactions_with_the_same_devices_wait_for_each_other(scene: Scene):
    keys = [DeviceKey(scene.company.id, f"phone {number}") for number in range(50)]

    async def add(order: list[DeviceKey]) -> None:
        async with scene.ledger.entry() as entry:
            await entry.add_devices({key: DeviceNews(nb_beacon=1) for key in order}, NOW)
            figures = {StatisticKey(TODAY, VENUE, n): Figures(n, detections=1) for n in range(9)}
            members = {StatisticDevice(TODAY, VENUE, n, 1) for n in range(9)}
            await entry.add_statistics(figures, members)

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
    await scene.store.make_days(TODAY, TODAY)
    async with scene.ledger.entry() as entry:
        await entry.add_detections([DetectionRow(1, 2, 3, "near", at, "10.0.0.1")] * 2)
        await entry.add_authentications([AuthenticationRow(1, 4, at, None)])
        await entry.add_detections([])
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
    async with scene.ledger.entry() as entry:
        await entry.add_receptions([reception(first)])
    async with scene.ledger.entry() as entry:
        assert await entry.counted([first, second]) == {first}
    with pytest.raises(AlreadyCountedError):
        async with scene.ledger.entry() as entry:
            await entry.add_receptions([reception(second), reception(first)])
    assert await count(scene, Reception) == 1


def reception(notification: UUID, at: datetime = NOW) -> ReceptionRow:
    return ReceptionRow(notification, 1, 2, at)


async def test_presences_are_replaced(scene: Scene):
    key, unknown = PresenceKey(1, 2), PresenceKey(1, 3)
    for state in (PresenceState("near", NOW), PresenceState("far", NOW + timedelta(minutes=1))):
        async with scene.ledger.entry() as entry:
            await entry.set_presences({key: state})
            await entry.set_presences({})
        async with scene.ledger.entry() as entry:
            assert await entry.presences({key, unknown}) == {key: state}


async def test_a_device_counts_once_a_day(scene: Scene):
    key = StatisticKey(TODAY, BEACON, 3)
    tomorrow = key._replace(day=TODAY + timedelta(days=1))
    for members in ({1, 2}, {2, 3}):
        async with scene.ledger.entry() as entry:
            await entry.add_statistics(
                {key: Figures(9, detections=5, notifications=1), tomorrow: Figures(9)},
                {StatisticDevice(*key, member) for member in members}
                | {StatisticDevice(*tomorrow, 1)},
            )
    async with scene.database.read() as session:
        rows = (await session.scalars(select(Statistic).order_by(Statistic.day))).all()
    figures = [(r.day, r.kind, r.ref, r.venue_id, r.detections) for r in rows]
    assert figures == [(TODAY, "beacon", 3, 9, 10), (tomorrow.day, "beacon", 3, 9, 0)]
    assert [(row.devices, row.notifications) for row in rows] == [(3, 2), (1, 0)]


async def test_what_is_looked_up(scene: Scene):
    ledger = scene.ledger
    assert await ledger.companies({scene.company.id, 999}) == {scene.company.id}
    assert await ledger.time_zones({scene.venue.id, 999}) == {scene.venue.id: "Europe/Paris"}
    found = await ledger.applications({"key-1", "key-2"})
    assert found == {"key-1": (scene.application.id, scene.company.id, True, None)}
    assert await ledger.companies([]) == set()
    async with scene.database.write() as session, session.begin():
        application = await session.merge(scene.application)
        application.expire_on, application.active = NOW, False
    found = await ledger.applications(["key-1"])
    assert found["key-1"][2:] == (False, NOW)


async def test_retention_keeps_the_last_days(scene: Scene):
    days = [TODAY - timedelta(days=age) for age in (40, 3, 2, 0)]
    await fill(scene, days)
    await retention(scene).tend()
    kept = {TODAY - timedelta(days=2), TODAY}
    async with scene.database.read() as session:
        for model in (DetectionTrace, AuthenticationTrace, Reception, Presence):
            instants = (await session.scalars(select(model.create_on))).all()
            assert {instant.date() for instant in instants} == kept, model
        # A record that waited for a recorder may still be counted for a day before.
        guarded = kept | {TODAY - timedelta(days=3)}
        assert set(await session.scalars(select(StatisticDeviceRow.day))) == guarded
        assert await session.scalar(select(func.count()).select_from(Statistic)) == len(days)


@pytest.mark.parametrize("server", ["sql", "redis"])
@pytest.mark.parametrize("ahead", [timedelta(days=32), timedelta(days=-32)])
async def test_nothing_is_deleted_while_a_clock_is_wrong(
    scene: Scene, server: str, ahead: timedelta
):
    """Of this process, of SQL, of Redis: whichever it is, two of them are far from each other."""
    await fill(scene, [TODAY - timedelta(days=40), TODAY])
    wrong = {"redis": NOW + ahead} if server == "redis" else {"ours": NOW + ahead}
    await retention(scene, **wrong).tend()
    for model in (DetectionTrace, AuthenticationTrace, Reception, Presence, StatisticDeviceRow):
        assert await count(scene, model) == 2, model
    slow = Retention(
        StoreAt(scene.store, NOW),
        days=2,
        max_age=600.0,
        clock=iter([NOW - MOST_SKEW, NOW + MOST_SKEW] * 2).__next__,  # the answer took long
        clocks={},
    )
    await slow.tend()
    assert await count(scene, Reception) == 1


async def test_what_guards_against_repeats_is_kept_by_when_it_was_recorded(scene: Scene):
    """However old or new the detections say that they are."""
    instants = [datetime(1, 1, 1, tzinfo=UTC), NOW, datetime(9999, 12, 31, tzinfo=UTC)]
    ids = [uuid4() for _ in instants]
    async with scene.ledger.entry() as entry:
        await entry.add_receptions([reception(*each) for each in zip(ids, instants, strict=True)])
        for number, at in enumerate(instants):
            await entry.set_presences({PresenceKey(1, number): PresenceState("far", at)})
        now = await entry.now()
    await retention(scene, sql=now + timedelta(days=2), ours=now + timedelta(days=2)).tend()
    async with scene.ledger.entry() as entry:
        assert await entry.counted(ids) == set(ids)
    assert await count(scene, Presence) == 3
    await retention(scene, sql=now + timedelta(days=4), ours=now + timedelta(days=4)).tend()
    assert await count(scene, Reception) == await count(scene, Presence) == 0


async def test_no_trace_is_kept_for_ever(scene: Scene):
    """Not even one of a day that never comes."""
    await fill(scene, [TODAY])
    for far in (NOW + timedelta(days=DAYS_AHEAD + 1), datetime(9999, 12, 31, tzinfo=UTC)):
        async with scene.ledger.entry() as entry:
            await entry.add_detections([DetectionRow(1, 2, 3, "near", far, None)])
            await entry.add_authentications([AuthenticationRow(1, 4, far, None)])
    await retention(scene).tend()
    for model in (DetectionTrace, AuthenticationTrace):
        assert await count(scene, model) == 1, model


async def test_sql_tells_its_time(scene: Scene):
    begin = datetime.now(UTC)
    async with scene.ledger.entry() as entry:
        told = [await entry.now(), await scene.store.now()]
    minute = timedelta(minutes=1)
    assert all(begin - minute < each < datetime.now(UTC) + minute for each in told)
    assert {each.utcoffset() for each in told} == {timedelta()}


class StoreAt:
    """A store whose clock stands still."""

    def __init__(self, store: Store, now: datetime) -> None:
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
        async with scene.ledger.entry() as entry:
            await entry.add_detections([DetectionRow(1, 2, 3, "near", at, None)])
            await entry.add_authentications([AuthenticationRow(1, 4, at, None)])
            await entry.add_receptions([reception(uuid4(), at)])
            await entry.set_presences({PresenceKey(1, number): PresenceState("far", at)})
            figure = StatisticKey(day, VENUE, 1)
            await entry.add_statistics({figure: Figures(1)}, {StatisticDevice(*figure, 1)})
    async with scene.database.write() as session, session.begin():
        for model in (Reception, Presence):
            await session.execute(update(model).values(recorded_on=model.create_on))


async def test_days_are_made_once_whoever_makes_them(scene: Scene):
    first, last = TODAY - timedelta(days=1), TODAY + timedelta(days=DAYS_AHEAD)
    await fill(scene, [TODAY])
    made = await asyncio.gather(*(scene.store.make_days(first, last) for _ in range(3)))
    expected = 2 * 5 if scene.database.dialect == "postgresql" else 0
    assert sum(made) == expected
    assert await count(scene, DetectionTrace) == 1
    limit = datetime.combine(TODAY + timedelta(days=1), datetime.min.time(), UTC)
    await scene.store.forget(Kept(limit, limit + timedelta(days=9), TODAY))
    assert await count(scene, DetectionTrace) == 0


async def devices(scene: Scene) -> dict[str, tuple[int, int]]:
    async with scene.database.read() as session:
        found = await session.scalars(select(Device).where(Device.company_id == scene.company.id))
        return {each.udid: (each.nb_beacon, each.nb_campaign) for each in found}


async def count(scene: Scene, model: type) -> int:
    async with scene.database.read() as session:
        return await session.scalar(select(func.count()).select_from(model)) or 0
