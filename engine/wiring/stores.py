"""Opens Redis and SQL for the roles."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog

from catalog.database import Database, open_database
from catalog.deadline import within
from catalog.index.comparison import LagListener
from catalog.index.drainer import OutboxDrainer
from catalog.index.writer import IndexStore
from catalog.limits import CatalogLimits
from catalog.migrate import pending_on
from catalog.redis_connection import RedisClient, connect_redis
from engine.kafka.topic_retention import RetentionReader
from engine.process.errors import SchemaError
from engine.process.failures import database_may_recover, describe
from engine.process.settings import Settings
from engine.redis.forgetting import DeviceEraser

log = structlog.get_logger(__name__)

_CLOSE_SECONDS = 5.0
_SCHEMA_SECONDS = 3.0


@dataclass(frozen=True, kw_only=True)
class Stores:
    """The clients of a process's servers, open until the process ends."""

    redis: RedisClient
    database: Database
    index_store: IndexStore

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
        redis = connect_redis(settings.redis_url.get_secret_value(), timeout=settings.redis_timeout)
        stack.push_async_callback(_close, "Redis", redis.aclose)
        database = open_database(settings.database_url.get_secret_value())
        stack.push_async_callback(_close, "SQL", database.close)
        store = IndexStore(redis, prefix=settings.redis_prefix, deadline=settings.redis_timeout)
        yield Stores(redis=redis, database=database, index_store=store)


def catalog_limits(settings: Settings) -> CatalogLimits:
    """The limits on a company's catalog."""
    return CatalogLimits(
        campaign_content=settings.campaign_content_bytes,
        venue_campaigns=settings.venue_campaigns,
        venue_beacons=settings.venue_beacons,
        beacon_open_campaigns=settings.beacon_open_campaigns,
    )


def device_eraser(settings: Settings, stores: Stores) -> DeviceEraser:
    """What deletes a device's data."""
    return DeviceEraser(
        database=stores.database,
        redis=stores.redis,
        prefix=settings.redis_prefix,
        deadline=settings.redis_timeout,
        retention=RetentionReader(settings).read,
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
