"""Loads a document into SQL and the index, for `catalog load` and for the demo."""

import asyncio
from contextlib import suppress
from functools import partial

from catalog.database import Database
from catalog.index.drain import DrainResult, drain_once, rebuild_if_missing
from catalog.index.writer import IndexStore
from catalog.load import LoadSummary, load_document
from catalog.redis_connection import connect_redis
from catalog.secrets import open_cipher
from connectors.egress import EgressGuard
from connectors.errors import HostUnresolvedError, UrlForbiddenError
from engine.process.settings import Settings
from engine.wiring.stores import catalog_limits

_DRAIN_SECONDS = 5.0
_PAUSE = 0.1


async def write_catalog(settings: Settings, database: Database, raw: bytes) -> LoadSummary:
    """Load the document `raw`.

    Raises SecretKeyError, LoadError, SQLAlchemyError or OSError; then nothing has changed.
    """
    egress = EgressGuard(
        allow_networks=settings.connector_allow_networks,
        deadline=settings.connector_connect_timeout,
    )
    key = settings.secret_key
    return await load_document(
        database.write,
        raw,
        None if key is None else open_cipher(key.get_secret_value()),
        limits=catalog_limits(settings),
        url_fault=partial(_url_fault, egress),
    )


async def update_index(settings: Settings, database: Database) -> None:
    """Bring the index in Redis up to date with SQL now, within 5 s.

    Raises RedisUrlError and those of catalog.index.drainer.OUTAGES. The outbox then keeps the
    changes, and any process that reaches SQL and Redis writes them.
    """
    redis = connect_redis(settings.redis_url.get_secret_value(), timeout=settings.redis_timeout)
    store = IndexStore(redis, prefix=settings.redis_prefix, deadline=settings.redis_timeout)
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            await rebuild_if_missing(database, store)
            while (outcome := await drain_once(database, store)) is not DrainResult.IDLE:
                if outcome is DrainResult.BUSY:  # another process is writing the index
                    await asyncio.sleep(_PAUSE)
    finally:
        await redis.aclose()


async def _url_fault(egress: EgressGuard, url: str) -> str | None:
    """The fault of a connector's url, or None.

    As in the interface, a name that does not resolve now is accepted.
    """
    try:
        with suppress(HostUnresolvedError):
            await egress.check(url)
    except UrlForbiddenError as error:
        return str(error)
    return None
