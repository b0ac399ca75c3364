"""What the roles of a process share: the clients of its servers, consumers, the publisher."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from catalog.database import Database, open_database, within
from catalog.index.drain import IndexStore, LagListener, OutboxDrainer
from catalog.limits import CatalogLimits
from catalog.migrate import pending_on
from catalog.redis_connection import REDIS_SECONDS, RedisClient, connect_redis
from engine.kafka.client import KafkaCluster
from engine.kafka.consumer import PartitionedConsumer, role_group
from engine.kafka.producer import Publisher
from engine.kafka.topics import read_retention
from engine.kafka.tracing import Tracer
from engine.kafka.transactions import Transactions, WorkerMaker
from engine.process.errors import SchemaError
from engine.process.failures import database_may_recover, describe
from engine.process.health import PROBE, ServerProbe
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.claims import ClaimReader
from engine.redis.decision_store import DecisionStore
from engine.redis.devices import DeviceLookup
from engine.redis.figures import FigureStore, FigureSums
from engine.redis.forgetting import DeviceEraser

if TYPE_CHECKING:
    from engine.wiring.servers import ClockSkew

log = structlog.get_logger(__name__)

_CLOSE_SECONDS = 5.0
_SCHEMA_SECONDS = 3.0
_KAFKA_SECONDS = 1.5


@dataclass(frozen=True, kw_only=True)
class Stores:
    """The clients of a process's servers, open until the process ends."""

    redis: RedisClient
    database: Database
    index_store: IndexStore
    redis_options: Mapping[str, Any]  # of every store in Redis

    async def redis_answers(self) -> bool:
        """Whether Redis answers now. Raises the errors of redis-py if it does not."""
        return bool(await self.redis.ping())

    async def drain_outbox(self, on_lag: LagListener) -> None:
        """Drain until cancelled. Every process with SQL does, so no writer has to live on for it.

        `on_lag` is called with the number of generations that the index is behind SQL.
        """
        drainer = OutboxDrainer(
            database=self.database, store=self.index_store, clock=time.monotonic, on_lag=on_lag
        )
        await drainer.run(asyncio.Event())


@asynccontextmanager
async def open_stores(settings: Settings) -> AsyncIterator[Stores]:
    """Redis and SQL clients; the first use of each opens its connection."""
    async with AsyncExitStack() as stack:
        redis = connect_redis(settings.redis_url.get_secret_value(), timeout=REDIS_SECONDS)
        stack.push_async_callback(_close, "Redis", redis.aclose)
        database = open_database(
            settings.database_url.get_secret_value(), pool_size=settings.database_pool
        )
        stack.push_async_callback(_close, "SQL", database.close)
        options = redis_options(settings, redis)
        yield Stores(
            redis=redis,
            database=database,
            index_store=IndexStore(**options),
            redis_options=options,
        )


def redis_options(settings: Settings, redis: RedisClient) -> dict[str, Any]:
    """The connection, the prefix of keys and the deadline (s) of a store in Redis."""
    return {"redis": redis, "prefix": settings.redis_prefix, "deadline": REDIS_SECONDS}


def catalog_limits(settings: Settings) -> CatalogLimits:
    """The limits on a company's catalog."""
    return CatalogLimits(
        campaign_content=settings.campaign_content_bytes,
        venue_campaigns=settings.venue_campaigns,
        venue_beacons=settings.venue_beacons,
        company_geofences=settings.company_geofences,
        beacon_open_campaigns=settings.beacon_open_campaigns,
    )


def device_eraser(settings: Settings, stores: Stores) -> DeviceEraser:
    """What deletes a device's data."""
    return DeviceEraser(
        database=stores.database,
        retention=partial(read_retention, settings),
        **stores.redis_options,
    )


async def _close(what: str, close: Callable[[], Awaitable[None]]) -> None:
    """Close within a deadline, so that a server that hangs cannot keep the process from ending."""
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await close()
    except TimeoutError:
        log.warning("closing took too long", what=what, seconds=_CLOSE_SECONDS)


async def refuse_old_schema(stores: Stores) -> None:
    """Raise SchemaError if SQL answers and lacks migrations.

    SQL that is down, or hangs, is no obstacle.
    """
    try:
        missing = await within(_SCHEMA_SECONDS, pending_on(stores.database.engine))
    except Exception as error:  # a role can wait for SQL, but not for a wrong schema
        if not database_may_recover(error):
            raise
        log.warning("SQL does not answer, going on without it", error=describe(error))
        return
    if missing:
        raise SchemaError(
            f"the database lacks {len(missing)} migration(s), first {missing[0]}: "
            "run `proximity migrate`"
        )


Service = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, kw_only=True)
class Role:
    """A role that is built and not started.

    `consumer` ends when its `stop` is set; each of `background`, by name, runs until cancelled.
    `checks`, by name, say whether the role can do its work, without waiting. `needs` names the
    servers besides Kafka and Redis that the role cannot work without (engine.wiring.servers).
    """

    name: str
    consumer: PartitionedConsumer
    background: Mapping[str, Service] = field(default_factory=dict)
    checks: Mapping[str, Callable[[], bool]] = field(default_factory=dict)
    needs: Collection[str] = ()


@dataclass(frozen=True, kw_only=True)
class ProcessParts:
    """The objects that a process's roles share. Without `clocks`, clock skew is not measured."""

    settings: Settings
    stores: Stores
    publisher: Publisher
    metrics: Metrics
    clocks: "ClockSkew | None" = None
    tracer: Tracer = field(default_factory=Tracer)

    def device_lookup(self) -> DeviceLookup:
        """A look-up of the catalog's devices, through Redis."""
        return DeviceLookup(
            redis=self.stores.redis,
            prefix=self.settings.redis_prefix,
            database=self.stores.database,
            metrics=self.metrics,
            clock=time.time,
        )


Builder = Callable[[ProcessParts], Role]


def role_consumer(parts: ProcessParts, role: str) -> "partial[PartitionedConsumer]":
    """A consumer with the options of every role; the role adds its topics, workers and bounds."""
    return partial(PartitionedConsumer, parts.settings, role=role, metrics=parts.metrics)


def transactional_consumer(
    parts: ProcessParts, role: str, make_worker: WorkerMaker
) -> tuple["partial[PartitionedConsumer]", Transactions]:
    """A consumer whose workers, made by `make_worker`, publish in transactions."""
    cluster = KafkaCluster(parts.settings)
    transactions = Transactions(
        parts.settings,
        cluster=cluster,
        group=role_group(parts.settings, role),
        role=role,
        metrics=parts.metrics,
        make=make_worker,
    )
    make = partial(
        role_consumer(parts, role),
        cluster=cluster,
        positions=transactions,
        worker_for=transactions.worker_for,
    )
    return make, transactions


@asynccontextmanager
async def open_publisher(settings: Settings, metrics: Metrics) -> AsyncIterator[Publisher]:
    """A started publisher, closed at the end."""
    publisher = Publisher(settings, errors=metrics.kafka_errors)
    try:
        await publisher.start()
        yield publisher
    finally:
        await publisher.close()


@asynccontextmanager
async def open_broker_probe(settings: Settings, metrics: Metrics) -> AsyncIterator[ServerProbe]:
    """The probe of Kafka for readiness; closed at the end."""
    async with KafkaCluster(settings, _KAFKA_SECONDS) as cluster:
        # The request has its own deadline: a connection that is cancelled while it is being made
        # stays open for ever.
        deadline = 10 * _KAFKA_SECONDS
        errors = metrics.kafka_errors
        yield ServerProbe(cluster.probe, operation=PROBE, errors=errors, deadline=deadline)


def figure_sums(parts: ProcessParts, clock: Callable[[], float]) -> FigureSums:
    """Sums to be written. `clock` gives epoch seconds."""
    store = build_figure_store(parts.settings, parts.stores.redis)
    return FigureSums(store=store, metrics=parts.metrics, clock=clock)


def build_figure_store(settings: Settings, redis: RedisClient) -> FigureStore:
    """The store of companies' figures on an open connection."""
    return FigureStore(**redis_options(settings, redis))


def build_claim_reader(settings: Settings, redis: RedisClient) -> ClaimReader:
    """A reader of claims on an open connection."""
    return ClaimReader(**redis_options(settings, redis))


def build_decision_store(settings: Settings, redis: RedisClient) -> DecisionStore:
    """The store of devices' last decisions on an open connection."""
    return DecisionStore(most=settings.recent_decisions, **redis_options(settings, redis))
