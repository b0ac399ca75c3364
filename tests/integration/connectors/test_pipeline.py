"""Publish, give claims back, remember, commit: records pushed through the production wiring.

Kafka is in memory: a list of what was published, and partitions that are offered records. Redis is
the embedded one, SQL a file of SQLite, services are on loopback.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from engine.process.settings_sources import load_settings
from engine.wiring.stores import open_stores
from tests.acceptance.connectors.customers import SECRET_KEY
from tests.integration.connectors.role import DELIVERIES, FIRST, LARGEST, World
from tests.servers.http_service import ReceivedRequest, content, hanging, serving
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually


@pytest.fixture(scope="module")
def migrated_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('sql') / 'catalog.db'}"
    asyncio.run(make_schema(url))
    return url


@pytest.fixture(params=DELIVERIES)
async def world(
    request: pytest.FixtureRequest, migrated_url: str, embedded_redis_url: str
) -> AsyncIterator[World]:
    settings = load_settings(
        redis_url=embedded_redis_url,
        database_url=migrated_url,
        secret_key=SECRET_KEY,
        delivery=request.param,
        connector_allow_networks="127.0.0.0/8",
        connector_tries=1,
        connector_call_timeout=30.0,
    )
    async with open_stores(settings) as stores, serving(hanging) as service:
        one = World(settings, stores, service)
        service.answer = one.answer
        yield one


async def test_every_kind_of_outcome(world: World) -> None:
    good, declined, gone, large = [
        await world.call(path) for path in ("/good", "/no", "/gone", "/large")
    ]
    nobody = await world.call("/nobody", connector=None)
    async with world.process() as process:
        process.offer(good, b'{"id": "bad"}', declined, gone, large, nobody)
        await process.until_committed(FIRST + 6)
    assert world.broker.outcomes() == {
        good.id: "notification",
        "bad": "invalid_field",
        gone.id: "connector_status",
        large.id: "too_large",
        nobody.id: "no_connector",
    }
    assert not await world.takes_claim(good, after=3599)
    assert not await world.takes_claim(declined, after=59)
    assert await world.takes_claim(declined, after=61)
    for failed in (gone, large, nobody):
        assert await world.takes_claim(failed)


async def test_a_dead_letter_too_large_says_that_its_value_is_left_out(world: World) -> None:
    heavy = await world.call("/gone", title="x" * 2 * LARGEST)
    async with world.process() as process:
        process.offer(heavy)
        await process.until_committed(FIRST + 1)
    (letter,) = world.broker.published
    assert (letter.key, letter.value) == (b"key", None)
    headers = {name: value.decode() for name, value in letter.headers}
    assert headers["reason"] == "too_large"  # so `dead-letters replay` passes it by
    assert headers["detail"].startswith("connector_status: ")
    assert await world.takes_claim(heavy)


async def test_nothing_is_done_before_it_is_published(world: World) -> None:
    good, gone = await world.call("/good"), await world.call("/gone")
    world.broker.is_up.clear()
    async with world.process() as process:
        process.offer(good, gone)
        await eventually(lambda: len(world.requested()) == 2, what="both services are called")
        await asyncio.sleep(0.05)  # in which a step that does not wait would be taken
        assert process.committed == FIRST
        if world.settings.delivery == "at_least_once":
            assert not await world.takes_claim(gone)
        world.broker.is_up.set()
        await process.until_committed(FIRST + 2)
        assert await world.takes_claim(gone)


async def test_calls_finished_behind_a_gap_are_not_sent_again(world: World) -> None:
    slow, good, gone = [await world.call(path) for path in ("/slow", "/good", "/gone")]
    async with world.process(crashes=True) as process:
        process.offer(slow, good, gone)
        await eventually(lambda: process.partition.pending == 1, what="two are finished")
        assert process.committed == FIRST
    assert sorted(world.requested()) == ["/gone", "/good", "/slow"]
    world.answers["/slow"] = content()
    async with world.process() as process:
        process.offer(slow, good, gone)
        await process.until_committed(FIRST + 3)
    assert sorted(world.requested()) == ["/gone", "/good", "/slow", "/slow"]
    assert world.broker.outcomes() == {
        slow.id: "notification",
        good.id: "notification",
        gone.id: "connector_status",
    }


async def test_a_crash_before_publishing_loses_no_call(world: World) -> None:
    good = await world.call("/good")
    world.broker.is_up.clear()
    async with world.process(crashes=True) as process:
        process.offer(good)
        await eventually(lambda: world.requested() == ["/good"], what="the service is called")
    assert world.broker.outcomes() == {}
    world.broker.is_up.set()
    async with world.process() as process:
        process.offer(good)
        await process.until_committed(FIRST + 1)
    assert world.broker.outcomes() == {good.id: "notification"}


async def test_a_revoked_partition_finishes_what_is_in_flight(world: World) -> None:
    held = asyncio.Event()

    async def after_the_revocation(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await held.wait()
        await content()(received, writer)

    world.answers["/slow"] = after_the_revocation
    slow = await world.call("/slow")
    async with world.process() as process:
        process.offer(slow)
        await eventually(lambda: world.requested() == ["/slow"], what="the service is called")
        finishing = asyncio.create_task(process.partition.finish(5.0))
        await asyncio.sleep(0)
        held.set()
        await finishing
        assert process.committed == FIRST + 1
    assert world.broker.outcomes() == {slow.id: "notification"}
