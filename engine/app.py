"""The composition root: the only place where concrete things are built and connected."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from catalog.database import Database, open_database
from catalog.index.drain import rebuild_if_missing
from catalog.index.drainer import Drainer
from catalog.index.writer import IndexMissingError, IndexStore, StaleTurnError
from catalog.migrate import pending_on
from catalog.redis_connection import RedisClient, connect_redis
from engine.failures import database_may_recover, describe, redis_may_recover
from engine.health import HealthServer
from engine.kafka.connection import connection_options
from engine.kafka.consumer import PartitionedConsumer
from engine.kafka.publisher import Publisher
from engine.kafka.topics import Topics
from engine.lifecycle import run_services
from engine.metrics import Metrics
from engine.settings import Settings
from engine.state.beacons import BeaconCache
from engine.state.claims import Claims
from engine.state.index import BeaconIndex
from engine.state.watch import IndexWatch
from engine.trigger import ROLE as TRIGGER
from engine.trigger import Trigger

log = structlog.get_logger(__name__)

ROLES = (TRIGGER,)
_REBUILD_PAUSE = 1.0


class SchemaError(Exception):
    """The tables are not those of this version; the message says what to run."""


@dataclass(frozen=True, kw_only=True)
class Stores:
    """What the roles of a process share to the outside, open until the process ends."""

    redis: RedisClient
    database: Database
    index_store: IndexStore


@dataclass(frozen=True, kw_only=True)
class TriggerRole:
    """The trigger's consumer, and what must run beside it."""

    consumer: PartitionedConsumer
    watch: IndexWatch
    index: BeaconIndex


async def run_trigger(
    settings: Settings, stop: asyncio.Event, *, on_started: Callable[[int], None] | None = None
) -> None:
    """Run the role trigger until `stop` is set. Raises what stopped it otherwise.

    `on_started` is called with the metrics port once everything is connected.
    """
    metrics = Metrics()
    async with open_stores(settings) as stores, _publisher(settings) as publisher:
        await refuse_old_schema(stores)
        role = build_trigger(settings, stores, publisher, metrics)
        health = HealthServer(
            registry=metrics.registry,
            checks={
                "running": _answering(lambda: not stop.is_set()),
                "partitions_assigned": _answering(lambda: role.consumer.assigned),
                "index_built": _answering(role.index.built.is_set),
                "redis": lambda: _pings(stores.redis),
            },
            host=settings.metrics_host,
            port=settings.metrics_port,
        )
        if on_started is not None:
            on_started(health.port)
        await run_services(
            foreground={TRIGGER: role.consumer.run(stop)},
            background={
                "index watch": role.watch.run(),
                "outbox drain": _drain(stores),
                "metrics port": health.run(),
            },
            stop=stop,
        )


async def refuse_old_schema(stores: Stores) -> None:
    """Raise SchemaError if SQL answers and lacks migrations; SQL that is away is no obstacle."""
    try:
        missing = await pending_on(stores.database.engine)
    except Exception as error:  # sorted: the trigger can do without SQL, but not with a wrong one
        if not database_may_recover(error):
            raise
        log.warning("SQL does not answer, going on without it", error=describe(error))
        return
    if missing:
        raise SchemaError(
            f"the database lacks {len(missing)} migration(s), first {missing[0]}: "
            "run `proximity migrate`"
        )


@asynccontextmanager
async def open_stores(settings: Settings) -> AsyncIterator[Stores]:
    """Redis and SQL clients; neither is contacted before it is used."""
    async with AsyncExitStack() as stack:
        redis = connect_redis(settings.redis_url.get_secret_value(), timeout=settings.redis_timeout)
        stack.push_async_callback(redis.aclose)
        database = open_database(settings.database_url.get_secret_value())
        stack.push_async_callback(database.close)
        store = IndexStore(redis, prefix=settings.redis_prefix, deadline=settings.redis_timeout)
        yield Stores(redis=redis, database=database, index_store=store)


def build_trigger(
    settings: Settings, stores: Stores, publisher: Publisher, metrics: Metrics
) -> TriggerRole:
    """The trigger, put together; nothing is started."""
    topics = Topics.named(settings.topic_prefix)
    index = BeaconIndex(
        redis=stores.redis,
        prefix=settings.redis_prefix,
        cache=BeaconCache(settings.index_cache_beacons),
        deadline=settings.redis_timeout,
        metrics=metrics,
    )
    claims = Claims(
        redis=stores.redis,
        prefix=settings.redis_prefix,
        # What is older than max_detection_age triggers nothing when it is delivered again.
        retain=2 * settings.max_detection_age,
        deadline=settings.redis_timeout,
        metrics=metrics,
    )
    trigger = Trigger(
        settings=settings,
        topics=topics,
        index=index,
        claims=claims,
        publisher=publisher,
        metrics=metrics,
    )
    watch = IndexWatch(
        redis=stores.redis,
        prefix=settings.redis_prefix,
        index=index,
        rebuild=lambda: _rebuild(stores),
        max_age=settings.index_cache_age,
        deadline=settings.redis_timeout,
        metrics=metrics,
    )
    consumer = PartitionedConsumer(
        consumer=group_consumer(settings, TRIGGER),
        topics=[topics.detections],
        role=TRIGGER,
        handler_for=trigger.for_partition,
        metrics=metrics,
        batch_records=settings.batch_records,
        in_flight_records=settings.in_flight_records,
        commit_interval=settings.commit_interval,
        drain_timeout=settings.drain_timeout,
    )
    return TriggerRole(consumer=consumer, watch=watch, index=index)


def group_consumer(settings: Settings, role: str) -> AIOKafkaConsumer:
    session_ms = int(settings.kafka_session_timeout * 1000)
    return AIOKafkaConsumer(
        **connection_options(settings),
        group_id=f"{settings.group_prefix}{role}",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        fetch_max_wait_ms=int(settings.kafka_fetch_wait * 1000),
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=session_ms // 5,
        # A revoked partition finishes its batch first; the group waits for that.
        rebalance_timeout_ms=int((settings.drain_timeout + settings.kafka_request_timeout) * 1000),
        partition_assignment_strategy=[StickyPartitionAssignor],
    )


@asynccontextmanager
async def _publisher(settings: Settings) -> AsyncIterator[Publisher]:
    publisher = Publisher.from_settings(settings)
    try:
        await publisher.start()
        yield publisher
    finally:
        await publisher.close()


async def _rebuild(stores: Stores) -> None:
    """Rebuild the index if it is missing. While SQL does not answer, say so and leave it."""
    try:
        await rebuild_if_missing(stores.database, stores.index_store)
    except Exception as error:  # sorted: the watch asks again, or the process stops
        flushed_or_overtaken = isinstance(error, IndexMissingError | StaleTurnError)
        if not (flushed_or_overtaken or database_may_recover(error) or redis_may_recover(error)):
            raise
        log.warning("the index cannot be compared with SQL now", error=describe(error))
        await asyncio.sleep(_REBUILD_PAUSE)


async def _drain(stores: Stores) -> None:
    """Every process that knows SQL drains the outbox: no writer has to live on for it."""
    drainer = Drainer(database=stores.database, store=stores.index_store, clock=time.monotonic)
    await drainer.run(asyncio.Event())  # until it is cancelled


def _answering(state: Callable[[], bool]) -> Callable[[], "asyncio.Future[bool]"]:
    def check() -> "asyncio.Future[bool]":
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        future.set_result(state())
        return future

    return check


async def _pings(redis: RedisClient) -> bool:
    return bool(await redis.ping())
