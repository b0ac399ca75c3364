"""The role: records pushed through the production wiring, and what it keeps in Redis.

Kafka is in memory: a list of what was published, and partitions that are offered records. Redis is
the embedded one, SQL a file of SQLite, services are on loopback.
"""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind

from engine.connector.partition import CallPartition
from engine.connector.results import ResultMemory, ResultTransactions
from engine.kafka.offsets import MOST_CHARACTERS, Position
from engine.kafka.tracing import OtelTracer
from engine.kafka.workers import Records
from engine.process.settings_sources import load_settings
from engine.wiring.parts import open_stores
from tests.connectors.role import DELIVERIES, FIRST, LARGEST, World
from tests.servers.http_service import ReceivedRequest, content, hanging, serving
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually
from tests.system.connectors.customers import SECRET_KEY


@pytest.fixture(scope="module")
def migrated_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('sql') / 'catalog.db'}"
    asyncio.run(make_schema(url))
    return url


@pytest.fixture(params=DELIVERIES)
async def world(
    request: pytest.FixtureRequest, migrated_url: str, embedded_redis_url: str
) -> AsyncIterator[World]:
    loaded = load_settings(
        redis_url=embedded_redis_url,
        database_url=migrated_url,
        secret_key=SECRET_KEY,
        delivery=request.param,
        connector_allow_networks="127.0.0.0/8",
        connector_call_timeout=30.0,
    )
    async with open_stores(loaded) as stores, serving(hanging) as service:
        one = World(loaded, stores, service)
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


async def test_a_repeated_call_takes_its_claim_again_before_it_publishes(world: World) -> None:
    """A crash after the claim was given back: another detection may have been sent meanwhile."""
    mine, lost = await world.call("/good"), await world.call("/good", udid="phone lost")
    await world.gives_back(mine)
    await world.gives_back(lost)
    assert await world.takes_claim(mine, after=1)
    async with world.process() as process:
        process.offer(mine, lost)
        await process.until_committed(FIRST + 2)
    assert sorted(world.requested()) == ["/good", "/good"]
    assert world.broker.outcomes() == {lost.id: "notification"}, "one within the delay"
    assert not await world.takes_claim(lost, after=3599)


@pytest.mark.parametrize("years", [1, 57, 100, 300])
async def test_declining_keeps_a_claim_of_any_delay(world: World, years: int) -> None:
    declined = await world.call("/no", delay=years * 365 * 86_400)
    async with world.process() as process:
        process.offer(declined)
        await process.until_committed(FIRST + 1)
    assert not await world.takes_claim(declined, after=59)
    assert await world.takes_claim(declined, after=61)


async def test_fetches_during_a_look_up_become_one_batch(world: World) -> None:
    """One fetch after the other was looked up: on a busy process calls waited for many seconds."""
    released = asyncio.Event()
    batches: list[int] = []
    async with world.process() as process:
        receive = process.receiver.receive

        async def slow(partition: CallPartition, records: Records) -> None:
            batches.append(len(records))
            await released.wait()
            await receive(partition, records)

        process.receiver.receive = slow
        for number in range(20):
            process.offer(await world.call("/good", udid=f"phone {number}"))
            await asyncio.sleep(0)
        assert batches == [1]
        released.set()
        await process.until_committed(FIRST + 20)
    assert batches == [1, 19]


async def test_results_that_wait_for_kafka_are_bounded(world: World) -> None:
    world.answers["/good"] = content(template="x" * (LARGEST // 2))
    world.broker.is_up.clear()
    async with world.process(memory=ResultMemory(LARGEST)) as process:
        calls = [await world.call("/good", udid=f"phone {number}") for number in range(100)]
        process.offer(*calls)
        await eventually(lambda: len(world.requested()) >= 2, what="the first are made")
        await asyncio.sleep(0.2)  # in which the others would be made
        assert len(world.requested()) < 40, "what was in flight when the bound was met, at most"
        world.broker.is_up.set()
        await process.until_committed(FIRST + 100)
    assert len(world.broker.outcomes()) == 100


async def test_a_try_has_a_span_of_its_own_below_the_waiting(world: World) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    sender = f"00-{'a' * 32}-{'b' * 16}-01"
    async with world.process(tracer=OtelTracer(provider.get_tracer("test"))) as process:
        process.offer(await world.call("/good"), headers=[("traceparent", sender.encode())])
        await process.until_committed(FIRST + 1)
    tried, waited = exporter.get_finished_spans()
    assert tried.parent is not None
    assert waited.context is not None
    assert tried.context is not None
    assert (tried.kind, waited.kind) == (SpanKind.CLIENT, SpanKind.CONSUMER)
    assert tried.parent.span_id == waited.context.span_id
    assert dict(tried.attributes or {}) == {
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "proximity.outcome": "published",
    }
    (received,) = world.service.received
    assert received.headers["traceparent"] == f"00-{'a' * 32}-{tried.context.span_id:016x}-01"


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2500), st.integers(1, 4))
def test_as_much_is_committed_as_fits_beside_the_offset(count: int, spread: int) -> None:
    nothing: Any = SimpleNamespace(close=None)
    transactions = ResultTransactions(publisher=nothing, begin=Position(0, "0" * 32))
    offsets = transactions.offsets
    offsets.begin_all(range(count * spread + 1))
    results = [
        number * spread + 1 for number in range(count) if number * spread + 1 < count * spread
    ]
    fits = transactions.fitting_offsets(results)
    if fits < len(results):
        assert len(offsets.ranges(results[: fits + 1]).text()) > MOST_CHARACTERS
    position = offsets.position(results[:fits])
    assert len(position.finished_ranges) <= MOST_CHARACTERS
    assert len(position.to_commit().metadata) <= 4096
