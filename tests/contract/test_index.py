"""The index on every kind of Redis: what its writer writes, the engine reads, and hears of."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from catalog.index.entries import (
    BUCKETS,
    MARKER_FIELD,
    beacon_field,
    campaign_field,
)
from catalog.redis_connection import RedisClient
from engine.kafka.detections import BeaconKey
from engine.process.cancelling import cancel
from engine.process.metrics import Metrics
from engine.trigger.beacon_cache import BeaconCache, IndexedBeacon
from engine.trigger.beacon_index import BeaconIndex
from engine.trigger.index_watch import IndexWatch
from rules.decision import decide
from rules.model import Reason, Zone
from tests.contract.index_writer import (
    PREFIX,
    Writer,
    beacon_entry,
    campaign_entry,
    connector_entry,
)
from tests.servers.waiting import eventually
from tests.unit.rules.records import UUID, venue

KNOWN = BeaconKey(UUID, 1, 2)
UNKNOWN = BeaconKey(UUID, 1, 3)
SENTINEL = BeaconKey(UUID, 1, 9999)
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()


async def told(
    index: BeaconIndex, writer: Writer, puts: dict[str, bytes], removals: Iterable[str] = ()
) -> None:
    """Write, and wait until the engine has heard of it."""
    index.cache.known[SENTINEL] = None
    await writer.put(puts | beacon_entry([], SENTINEL.minor), removals)
    await eventually(lambda: SENTINEL not in index.cache.known, what="the change is heard of")


@pytest.fixture
def writer(redis: RedisClient) -> Writer:
    return Writer(redis)


@pytest.fixture
def index(redis: RedisClient, metrics: Metrics) -> BeaconIndex:
    return BeaconIndex(
        redis=redis, prefix=PREFIX, cache=BeaconCache(1000), deadline=5.0, metrics=metrics
    )


@pytest.fixture
async def built(writer: Writer, index: BeaconIndex) -> Writer:
    """An index with one beacon and one campaign, which the engine knows to be there."""
    writer.fields |= beacon_entry([7]) | campaign_entry(7)
    await writer.rebuild()
    index.built.set()
    return writer


async def resolve(index: BeaconIndex, *keys: BeaconKey) -> list[IndexedBeacon | None]:
    async with asyncio.timeout(5):
        found = await index.resolve(set(keys), len(keys))
    return [found[key] for key in keys]


async def one(index: BeaconIndex, key: BeaconKey = KNOWN) -> IndexedBeacon:
    (found,) = await resolve(index, key)
    assert found is not None
    return found


def granted(found: IndexedBeacon) -> list[int]:
    decision = decide(found.target, Zone.NEAR, NOON, NOON, 300, {})
    return [each.id for each in decision.granted]


def watch_of(
    redis: RedisClient,
    index: BeaconIndex,
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


@asynccontextmanager
async def running(watch: IndexWatch) -> AsyncIterator[None]:
    task = asyncio.create_task(watch.run())
    try:
        yield
        assert not task.done(), task
    finally:
        await cancel([task])


@pytest.fixture
async def watched(
    redis: RedisClient, index: BeaconIndex, metrics: Metrics, built: Writer
) -> AsyncIterator[Writer]:
    """The same with the watch running, which has looked once."""
    index.built.clear()
    async with running(watch_of(redis, index, metrics, built.rebuild_if_missing)):
        await asyncio.wait_for(index.built.wait(), 5)
        yield built


async def test_a_known_beacon_comes_with_its_campaigns(index: BeaconIndex, built: Writer) -> None:
    found = await one(index)
    assert granted(found) == [7]
    assert (found.reference.uuid, found.reference.minor) == (UUID, 2)
    assert found.venue_reference.name == "Library"
    assert found.connector is None


async def test_an_unknown_beacon_is_none(index: BeaconIndex, built: Writer) -> None:
    assert [found is None for found in await resolve(index, KNOWN, UNKNOWN)] == [False, True]


async def test_inactive_ones_say_so(index: BeaconIndex, built: Writer) -> None:
    await built.put(beacon_entry([7], active=False))
    await built.put(beacon_entry([7], minor=4, venue=venue(active=False)))
    off, shut = await resolve(index, KNOWN, BeaconKey(UUID, 1, 4))
    assert off is not None
    assert shut is not None
    reasons = [decide(t.target, Zone.NEAR, NOON, NOON, 300, {}).reason for t in (off, shut)]
    assert reasons == [Reason.INACTIVE_BEACON, Reason.INACTIVE_VENUE]


async def test_a_connector_comes_along_where_a_campaign_wants_it(
    index: BeaconIndex, built: Writer
) -> None:
    await built.put(connector_entry("https://one.example/"))
    assert (await one(index)).connector is None
    await built.put(campaign_entry(7, format="connector", content=None))
    index.cache.drop_all()
    found = (await one(index)).connector
    assert found is not None
    assert found.url == "https://one.example/"


async def test_a_campaign_that_is_gone_is_left_out(index: BeaconIndex, built: Writer) -> None:
    await built.put(beacon_entry([6, 7]))
    assert granted(await one(index)) == [7]


async def test_a_campaign_with_a_zone_that_is_not_known_silences_only_itself(
    index: BeaconIndex, built: Writer
) -> None:
    await built.put(campaign_entry(8, time_zone="Mars/Olympus") | beacon_entry([7, 8]))
    assert granted(await one(index)) == [7]


async def test_many_beacons_in_one_call(index: BeaconIndex, built: Writer) -> None:
    puts: dict[str, bytes] = {}
    for minor in range(100, 600):
        puts |= beacon_entry([minor], minor) | campaign_entry(minor)
    await built.put(puts)
    keys = [BeaconKey(UUID, 1, minor) for minor in range(100, 700)]
    found = await resolve(index, *keys)
    assert [b is not None and granted(b) for b in found[:500]] == [[n] for n in range(100, 600)]
    assert found[500:] == [None] * 100


async def test_what_is_remembered_costs_no_round_trip(
    index: BeaconIndex, built: Writer, redis: RedisClient
) -> None:
    before = await resolve(index, KNOWN, UNKNOWN)
    await redis.flushall()
    assert await resolve(index, KNOWN, UNKNOWN) == before


async def test_lookups_are_counted(index: BeaconIndex, built: Writer, metrics: Metrics) -> None:
    for _ in range(3):
        await index.resolve({KNOWN, UNKNOWN}, 10)

    def count(layer: str, outcome: str) -> float | None:
        labels = {"layer": layer, "outcome": outcome}
        return metrics.registry.get_sample_value("proximity_index_lookups_total", labels)

    assert [count("redis", "hit"), count("redis", "unknown")] == [1, 1]
    assert [count("process", "miss"), count("process", "hit")] == [2, 28]


@pytest.mark.parametrize("of", ["beacon", "campaign"])
async def test_without_a_marker_nothing_is_unknown_but_waits(
    index: BeaconIndex, built: Writer, redis: RedisClient, of: str
) -> None:
    """One bucket without its marker, be it that of the beacon or that of its campaign."""
    field = beacon_field(*KNOWN) if of == "beacon" else campaign_field(7)
    bucket = built.store.keys.of(field)
    await redis.delete(bucket)
    asked = asyncio.create_task(index.resolve({KNOWN}, 1))
    await eventually(lambda: not index.built.is_set(), what="the missing marker is noticed")
    assert not asked.done()
    await built.rebuild()
    index.built.set()
    found = (await asyncio.wait_for(asked, 5))[KNOWN]
    assert found is not None
    assert granted(found) == [7]


async def test_a_change_message_drops_what_it_names(index: BeaconIndex, watched: Writer) -> None:
    await told(index, watched, beacon_entry([7], minor=4))
    kept = BeaconKey(UUID, 1, 4)
    first = await resolve(index, KNOWN, kept, UNKNOWN)
    await told(index, watched, beacon_entry([]))
    changed, same, unknown = await resolve(index, KNOWN, kept, UNKNOWN)
    assert changed is not None
    assert granted(changed) == []
    assert same is first[1]
    assert unknown is None


async def test_a_beacon_that_comes_is_known_and_one_that_goes_unknown(
    index: BeaconIndex, watched: Writer
) -> None:
    await resolve(index, KNOWN, UNKNOWN)
    await told(index, watched, beacon_entry([7], minor=3), [beacon_field(*KNOWN)])
    gone, came = await resolve(index, KNOWN, UNKNOWN)
    assert gone is None
    assert came is not None


@pytest.mark.parametrize("kind", ["campaign", "connector"])
async def test_a_change_drops_the_beacons_that_depend_on_it(
    index: BeaconIndex, watched: Writer, kind: str
) -> None:
    await watched.put(campaign_entry(7, format="connector", content=None))
    await watched.put(connector_entry("https://one.example/"))
    await told(index, watched, beacon_entry([], minor=4, venue=venue(company_id=9)))
    other = BeaconKey(UUID, 1, 4)
    await resolve(index, KNOWN, other)
    puts = campaign_entry(7, active=False) if kind == "campaign" else connector_entry("https://2/")
    await told(index, watched, puts)
    assert KNOWN not in index.cache.known
    assert other in index.cache.known


async def test_a_campaign_that_was_missing_drops_its_beacon_when_it_comes(
    index: BeaconIndex, watched: Writer
) -> None:
    await told(index, watched, beacon_entry([7, 8]))
    assert granted(await one(index)) == [7]
    await told(index, watched, campaign_entry(8))
    assert granted(await one(index)) == [7, 8]


async def test_many_changes_at_once(index: BeaconIndex, watched: Writer) -> None:
    for number in range(300):
        await watched.put(campaign_entry(7, title=str(number)))

    async def newest() -> bool:
        (campaign_,) = decide((await one(index)).target, Zone.NEAR, NOON, NOON, 300, {}).granted
        return campaign_.title == "299"

    await eventually(newest, what="the last of them is seen")


async def test_a_change_while_it_is_loaded_is_not_remembered(
    index: BeaconIndex, built: Writer
) -> None:
    """The entry was read, then changed, and the change was heard of before the load was done."""
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


async def test_a_rebuild_drops_everything(index: BeaconIndex, watched: Writer) -> None:
    await resolve(index, KNOWN, UNKNOWN)
    watched.fields |= beacon_entry([])
    await watched.rebuild()
    await eventually(lambda: not index.cache.known, what="everything is dropped")
    assert granted(await one(index)) == []


async def test_what_is_remembered_grows_old(
    redis: RedisClient, index: BeaconIndex, metrics: Metrics, built: Writer
) -> None:
    async with running(watch_of(redis, index, metrics, built.rebuild_if_missing, max_age=0.3)):
        await one(index)
        await eventually(lambda: not index.cache.known, what="it is read again")


async def test_an_index_that_was_never_built_is(
    redis: RedisClient, index: BeaconIndex, metrics: Metrics, writer: Writer
) -> None:
    writer.fields |= beacon_entry([7]) | campaign_entry(7)
    async with running(watch_of(redis, index, metrics, writer.rebuild_if_missing)):
        assert granted(await one(index)) == [7]
    assert writer.rebuilds == 1


async def test_a_flush_heals_and_takes_nothing_for_unknown(
    index: BeaconIndex, watched: Writer, redis: RedisClient
) -> None:
    puts: dict[str, bytes] = {}
    for minor in range(100, 400):
        puts |= beacon_entry([7], minor)
    await watched.put(puts)
    begun = watched.rebuilds
    for minor in range(100, 400):
        if minor % 100 == 50:
            await redis.flushall()
        (found,) = await resolve(index, BeaconKey(UUID, 1, minor))
        assert found is not None
        assert granted(found) == [7]
    assert begun + 1 <= watched.rebuilds <= begun + 3
    await eventually(index.built.is_set)


async def test_changes_are_followed_after_a_flush(
    index: BeaconIndex, watched: Writer, redis: RedisClient
) -> None:
    await one(index)
    begun = watched.rebuilds
    await redis.flushall()
    await eventually(lambda: watched.rebuilds > begun and index.built.is_set())
    await one(index)
    await told(index, watched, campaign_entry(7, active=False))
    assert granted(await one(index)) == []


async def test_a_flush_while_sql_is_away_is_waited_out(
    redis: RedisClient, index: BeaconIndex, metrics: Metrics, built: Writer
) -> None:
    """The rebuild says that it cannot and returns; it is asked again, and again."""
    asked = 0

    async def cannot() -> None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.02)
        if asked > 5:
            await built.rebuild_if_missing()

    await resolve(index, UNKNOWN)
    async with running(watch_of(redis, index, metrics, cannot)):
        await eventually(lambda: asked == 1)
        await redis.flushall()
        assert granted(await one(index)) == [7]
    assert asked > 5


async def test_a_marker_is_in_every_bucket(built: Writer, redis: RedisClient) -> None:
    for number in range(BUCKETS):
        assert await redis.hexists(built.store.keys.bucket(number), MARKER_FIELD)
