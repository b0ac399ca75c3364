"""What the roles of a process share: the clients of its servers, consumers, the publisher."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import structlog
from sqlalchemy import text

from catalog.bounds import within
from catalog.database import COMMAND_SECONDS, Database, open_database
from catalog.index.drain import IndexStore, OutboxDrainer
from catalog.limits import CatalogLimits
from catalog.migrate import pending
from catalog.redis_connection import REDIS_SECONDS, RedisClient, connect_redis
from catalog.secrets import Cipher, open_cipher
from engine.kafka.client import KafkaCluster
from engine.kafka.consumer import PartitionedConsumer, role_group
from engine.kafka.dead_letters import DeadLetterPublisher
from engine.kafka.producer import Publisher
from engine.kafka.topics import Topics, read_retention
from engine.kafka.tracing import Tracer
from engine.kafka.transactions import Transactions
from engine.kafka.workers import PartitionWorker
from engine.process.errors import SchemaError
from engine.process.failures import database_may_recover, describe
from engine.process.health import PROBE, ClockSkew, probe
from engine.process.lifecycle import close_within
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.devices import DeviceLookup
from engine.redis.forgetting import DeviceEraser
from engine.redis.store import redis_time

log = structlog.get_logger(__name__)

_CLOSE_SECONDS = 5.0
_SCHEMA_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class Stores:
    """The clients of a process's servers, open until the process ends."""

    redis: RedisClient
    database: Database
    index_store: IndexStore
    redis_options: Mapping[str, Any]  # of every store in Redis


@asynccontextmanager
async def open_stores(
    settings: Settings, *, command_timeout: float = COMMAND_SECONDS
) -> AsyncIterator[Stores]:
    """Redis and SQL clients; the first use of each opens its connection.

    `command_timeout` (seconds) bounds a statement.
    """
    async with AsyncExitStack() as stack:
        redis = connect_redis(settings.redis_url.get_secret_value(), timeout=REDIS_SECONDS)
        stack.push_async_callback(close_within, _CLOSE_SECONDS, "Redis", redis.aclose)
        database = open_database(
            settings.database_url.get_secret_value(),
            command_timeout=command_timeout,
            pool_size=settings.database_pool,
        )
        stack.push_async_callback(close_within, _CLOSE_SECONDS, "SQL", database.close)
        options: Any = {"redis": redis, "prefix": settings.redis_prefix, "deadline": REDIS_SECONDS}
        yield Stores(
            redis=redis, database=database, index_store=IndexStore(**options), redis_options=options
        )


def catalog_limits(settings: Settings) -> CatalogLimits:
    return CatalogLimits(
        campaign_content=settings.campaign_content_bytes,
        venue_campaigns=settings.venue_campaigns,
        venue_beacons=settings.venue_beacons,
        company_geofences=settings.company_geofences,
        beacon_open_campaigns=settings.beacon_open_campaigns,
    )


def cipher_of(settings: Settings) -> Cipher | None:
    """The cipher of SECRET_KEY, if it is set. Raises SecretKeyError."""
    key = settings.secret_key
    return None if key is None else open_cipher(key.get_secret_value())


def device_eraser(settings: Settings, stores: Stores) -> DeviceEraser:
    return DeviceEraser(
        database=stores.database,
        retention=partial(read_retention, settings),
        **stores.redis_options,
    )


async def refuse_old_schema(database: Database) -> None:
    """Raise SchemaError if SQL lacks migrations."""
    if missing := await pending(database.engine):
        raise SchemaError(
            f"the database lacks {len(missing)} migration(s), first {missing[0]}: "
            "run `proximity migrate`"
        )


async def refuse_old_schema_if_known(database: Database) -> None:
    """As refuse_old_schema; SQL that is down, or hangs, is no obstacle."""
    try:
        await within(_SCHEMA_SECONDS, refuse_old_schema(database))
    except Exception as error:  # a role can wait for SQL, but not for a wrong schema
        if not database_may_recover(error):
            raise
        log.warning("SQL does not answer, going on without it", error=describe(error))


Service = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, kw_only=True)
class Role:
    """A role that is built and not started.

    `consumer` ends when its `stop` is set; each of `background`, by name, runs until cancelled.
    `checks`, by name, say whether the role can do its work, besides having partitions. `needs`
    names the servers besides Kafka and Redis that it cannot work without (engine.wiring.run).
    """

    name: str
    consumer: PartitionedConsumer
    background: Mapping[str, Service] = field(default_factory=dict)
    checks: Mapping[str, Callable[[], bool]] = field(default_factory=dict)
    needs: Collection[str] = ()

    def results(self) -> dict[str, bool]:
        results = {name: check() for name, check in self.checks.items()}
        return {"partitions_assigned": self.consumer.assigned} | results


@dataclass(frozen=True, kw_only=True)
class ProcessParts:
    """The objects that a process's roles share."""

    settings: Settings
    stores: Stores
    publisher: Publisher
    metrics: Metrics
    tracer: Tracer = field(default_factory=Tracer)

    @cached_property
    def clocks(self) -> ClockSkew:
        """The comparison with the clocks of Redis and, unless it is SQLite, SQL."""
        database = self.stores.database

        async def sql_time() -> float:
            async with database.read() as session:
                query = text("SELECT EXTRACT(EPOCH FROM clock_timestamp())")
                return float(await session.scalar(query) or 0.0)

        read: dict[str, Callable[[], Awaitable[float]]]
        read = {"redis": partial(redis_time, self.stores.redis)}
        if database.dialect == "postgresql":  # SQLite has this host's clock
            read["sql"] = sql_time
        return ClockSkew(read, self.metrics.clock_skew)

    def device_lookup(self) -> DeviceLookup:
        """A look-up of the catalog's devices, through Redis."""
        return DeviceLookup(
            redis=self.stores.redis,
            prefix=self.settings.redis_prefix,
            database=self.stores.database,
            metrics=self.metrics,
            clock=time.time,
        )

    def dead_letters(self, clock: Callable[[], float] = time.time) -> DeadLetterPublisher:
        """Publishes dead letters. `clock` gives epoch seconds."""
        return DeadLetterPublisher(
            topic=Topics.of(self.settings.topic_prefix).dead_letters,
            publisher=self.publisher,
            metrics=self.metrics,
            clock=clock,
        )


def publishing_consumer(
    parts: ProcessParts,
    role: str,
    *,
    worker_for: Callable[..., PartitionWorker],
    **options: Any,
) -> PartitionedConsumer:
    """The consumer of a role that publishes. `options` are the consumer's.

    Exactly once, `worker_for` gets a publisher for each worker as its last argument.
    """
    settings, metrics = parts.settings, parts.metrics
    make = partial(PartitionedConsumer, settings=settings, role=role, metrics=metrics, **options)
    if settings.delivery == "at_least_once":
        return make(worker_for=worker_for)
    cluster = KafkaCluster(settings)
    transactions = Transactions(
        settings=settings,
        cluster=cluster,
        group=role_group(settings, role),
        role=role,
        metrics=metrics,
        make=worker_for,
    )
    return make(cluster=cluster, positions=transactions.load, worker_for=transactions.worker_for)


def outbox_drainer(stores: Stores, metrics: Metrics) -> OutboxDrainer:
    """Updates the index in Redis. Every process with SQL does, so no writer has to live on."""
    return OutboxDrainer(
        database=stores.database, store=stores.index_store, on_lag=metrics.index_lag.set
    )


async def sql_answers(stores: Stores, metrics: Metrics) -> bool:
    """Whether SQL answers now."""

    async def query_sql() -> None:
        async with stores.database.read() as session:
            await session.execute(text("SELECT 1"))

    return await probe(query_sql, PROBE, metrics.sql_errors)
