"""The index on every kind of Redis: the engine reads what the writer writes, and its changes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import UTC, datetime

import pytest

from catalog.index.entries import application_field, beacon_field, geofences_field
from catalog.redis_connection import RedisClient
from engine.kafka.detections import BeaconKey, GeofenceKey, PlaceKey, TagKey
from engine.kafka.messages import BeaconReference
from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics
from engine.trigger.place_cache import IndexedPlace
from engine.trigger.place_index import IndexWatch, Loaded, PlaceIndex
from rules.decision import decide
from rules.geofences import Circle
from rules.model import Cap, Zone
from tests.redis.index_writer import (
    PREFIX,
    Writer,
    application_entry,
    beacon_entry,
    campaign_entry,
    circles_entry,
    connector_entry,
    geofence_entry,
    rules_entry,
    tag_entry,
)
from tests.rules.records import UUID
from tests.servers.waiting import eventually

KNOWN = BeaconKey(UUID, 1, 2)
UNKNOWN = BeaconKey(UUID, 1, 3)
SENTINEL = BeaconKey(UUID, 1, 9999)
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()


async def resolve(index: PlaceIndex, *keys: PlaceKey) -> list[IndexedPlace | None]:
    async with asyncio.timeout(90):
        found = await index.resolve(set(keys), len(keys))
    return [found[key] for key in keys]


async def one(index: PlaceIndex, key: BeaconKey = KNOWN) -> IndexedPlace:
    (found,) = await resolve(index, key)
    assert found is not None
    return found


def granted(found: IndexedPlace) -> list[int]:
    decision = decide(found.target, Zone.NEAR, NOON, NOON, 300, {})
    return [each.id for each in decision.granted]


async def test_a_beacon_is_read_once_with_its_campaigns(
    index: PlaceIndex, built: Writer, metrics: Metrics
) -> None:
    """Also by partitions that need it at once."""
    found, *others = await asyncio.gather(*(one(index) for _ in range(4)))
    assert all(each is found for each in others)
    assert granted(found) == [7]
    assert found.reference == BeaconReference(1, "Desk", UUID, 1, 2)
    assert (found.venue_reference.name, found.connector) == ("Library", None)
    read = {"layer": "redis", "outcome": "hit"}
    assert metrics.registry.get_sample_value("proximity_index_lookups_total", read) == 1


async def test_beacons_that_cannot_be_loaded_hold_up_no_others(
    index: PlaceIndex, built: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One company's content may be too large for the deadline: its load is retried for ever."""
    load, begun = index._load, asyncio.Event()

    async def slow(keys: list[PlaceKey]) -> Loaded:
        if UNKNOWN in keys:
            begun.set()
            await asyncio.Event().wait()
        return await load(keys)

    monkeypatch.setattr(index, "_load", slow)
    stuck = asyncio.create_task(resolve(index, UNKNOWN))
    await begun.wait()
    async with asyncio.timeout(90):
        assert granted(await one(index)) == [7]
    await cancel([stuck])


async def test_a_connector_is_read_where_a_campaign_uses_it_and_the_rules_of_the_company(
    index: PlaceIndex, built: Writer
) -> None:
    await built.put(connector_entry("https://one.example/"))
    found = await one(index)
    assert (found.connector, found.target.rules.caps) == (None, ())
    await built.put(campaign_entry(7, format="connector", content=None) | rules_entry(Cap(3, 60)))
    index.cache.drop_all()
    found = await one(index)
    assert found.connector is not None
    assert found.connector.url == "https://one.example/"
    assert found.target.rules.caps == (Cap(3, 60),)


# Changes: the engine receives them and drops stale entries


async def write_and_wait(
    index: PlaceIndex, writer: Writer, puts: dict[str, bytes], removals: Iterable[str] = ()
) -> None:
    """Write, and wait until the engine has received the change."""
    index.cache.known[SENTINEL] = None
    await writer.put(puts | beacon_entry([], SENTINEL.minor), removals)
    await eventually(lambda: SENTINEL not in index.cache.known, what="the change is received")


def watch_of(
    redis: RedisClient,
    index: PlaceIndex,
    metrics: Metrics,
    rebuild: Callable[[], Awaitable[None]],
    max_age: float = 300.0,
) -> IndexWatch:
    return IndexWatch(
        redis=redis,
        prefix=PREFIX,
        index=index,
        rebuild=rebuild,
        max_age=max_age,
        deadline=5.0,
        metrics=metrics,
    )


@pytest.fixture
async def watched(
    redis: RedisClient, index: PlaceIndex, metrics: Metrics, built: Writer
) -> AsyncIterator[Writer]:
    """The same with a running watch, which has polled once."""
    index.built.clear()
    task = asyncio.create_task(watch_of(redis, index, metrics, built.rebuild_if_missing).run())
    await asyncio.wait_for(index.built.wait(), 90)
    yield built
    assert not task.done(), task
    await cancel([task])


async def test_a_change_message_drops_what_it_names(index: PlaceIndex, watched: Writer) -> None:
    await write_and_wait(index, watched, beacon_entry([7], minor=4))
    kept = BeaconKey(UUID, 1, 4)
    first = await resolve(index, KNOWN, kept, UNKNOWN)
    await write_and_wait(index, watched, beacon_entry([]))
    changed, same, unknown = await resolve(index, KNOWN, kept, UNKNOWN)
    assert changed is not None
    assert granted(changed) == []
    assert same is first[1]
    assert unknown is None


HERE = GeofenceKey(4)
CODE = TagKey(1, "qrcode", "https://example.org/poster")
OURS, CIRCLES = application_field("ours"), geofences_field(1)


async def test_places_of_every_kind_and_data_of_companies_follow_changes(
    index: PlaceIndex, watched: Writer
) -> None:
    made = tag_entry([7]) | geofence_entry(4, [7])
    of_company = application_entry("ours") | circles_entry(Circle(4, 48.8584, 2.2945, 200.0))
    assert await resolve(index, HERE, CODE) == [None, None]
    assert set((await index.company_data([OURS, CIRCLES])).values()) == {None}
    await write_and_wait(index, watched, made | of_company)
    assert [each and granted(each) for each in await resolve(index, HERE, CODE)] == [[7], [7]]
    found = await index.company_data([OURS, CIRCLES])
    assert found[OURS].admits(NOON)
    assert [circle.id for circle in found[CIRCLES].containing(48.8584, 2.2945)] == [4]
    await write_and_wait(index, watched, application_entry("ours", active=False), made)
    assert await resolve(index, HERE, CODE) == [None, None]
    again = await index.company_data([OURS, CIRCLES])
    assert not again[OURS].admits(NOON)
    assert again[CIRCLES] is found[CIRCLES]


async def test_a_change_while_it_is_loaded_is_not_remembered(
    index: PlaceIndex, built: Writer
) -> None:
    """The entry was read, then changed, and the change was received before the load was done."""
    read = index._read

    async def slow(fields: list[str]) -> dict[str, bytes | None]:
        values = await read(fields)
        if any(field.startswith("b:") for field in fields):
            await built.put(beacon_entry([]))
            index.cache.drop([beacon_field(*KNOWN)])
        return values

    index._read = slow  # type: ignore[method-assign]
    await resolve(index, KNOWN)
    assert KNOWN not in index.cache.known
    index._read = read  # type: ignore[method-assign]
    assert granted(await one(index)) == []


async def test_cached_beacons_are_read_again_one_after_the_other(
    redis: RedisClient, index: PlaceIndex, metrics: Metrics, built: Writer
) -> None:
    """All of them within `max_age`, and never all at once: no detection waits for that."""
    await resolve(index, KNOWN, UNKNOWN)
    await index.company_data([OURS])
    kept = index.cache.known[KNOWN]
    watch = watch_of(redis, index, metrics, built.rebuild_if_missing, max_age=2.0)
    await watch._refresh(1.0)
    await watch._refresh(1.0)
    assert index.cache.known[KNOWN] is kept, "it is what it was"
    # A change that nobody was told of.
    built.fields |= beacon_entry([], KNOWN.minor) | application_entry("ours")
    await built.rebuild()
    version = index.cache.version
    for _ in range(6):
        await watch._refresh(1.0)
    assert index.cache.known[OURS] is not None
    changed = index.cache.known[KNOWN]
    assert changed is not kept
    assert changed is not None
    assert not changed.campaigns
    assert (index.cache.version, set(index.cache.known)) == (version, {KNOWN, UNKNOWN, OURS})
