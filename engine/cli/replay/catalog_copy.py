"""Copies SQL's catalog into a temporary file, and loads catalog documents into copies.

SQL itself is only read: loading in a transaction that is rolled back would hold locks and use up
ids.
"""

import secrets
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from sqlalchemy import Table, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from catalog.database import Database, open_database, with_write_lock
from catalog.limits import CatalogLimits
from catalog.load import load_document
from catalog.migrate import migrate
from catalog.models import (
    Beacon,
    Campaign,
    Company,
    Connector,
    Geofence,
    Tag,
    Venue,
    beacon_tag,
    campaign_beacon,
    campaign_geofence,
    campaign_tag,
)
from catalog.secrets import Cipher, open_cipher

_CHUNK = 500
_TABLES: Sequence[Any] = (
    *(model.__table__ for model in (Company, Connector, Venue, Tag, Beacon, Geofence, Campaign)),
    *(beacon_tag, campaign_beacon, campaign_geofence, campaign_tag),
)
# Parts of a document that are not in the catalog, or have no effect on decisions.
_NOT_PLACES = ("accounts", "applications", "devices")


def url_of(path: Path) -> str:
    """The URL of an SQLite file."""
    return f"sqlite:///{path}"


async def make_empty(path: Path) -> None:
    """Make a file with empty tables."""
    await migrate(url_of(path))


async def copy_catalog(source: Database, path: Path) -> None:
    """Copy the catalog of `source` to a new file, without devices, accounts or traces.

    Raises SQLAlchemyError or OSError.
    """
    await make_empty(path)
    target = open_database(url_of(path))
    try:
        async with (
            source.engine.connect() as reading,
            with_write_lock(target.engine).begin() as writing,
        ):
            if source.dialect == "postgresql":
                await reading.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            for table in _TABLES:
                await _copy_table(table, reading, writing)
    finally:
        await target.close()


async def _copy_table(table: Table, reading: AsyncConnection, writing: AsyncConnection) -> None:
    query = select(table)
    if "deleted_at" in table.c:
        query = query.where(table.c.deleted_at.is_(None))
    async with reading.stream(query) as rows:
        async for chunk in rows.mappings().partitions(_CHUNK):
            await writing.execute(insert(table), [dict(row) for row in chunk])


@asynccontextmanager
async def loaded_over(base: Path, raw: bytes, limits: CatalogLimits) -> AsyncIterator[Database]:
    """A database with a document loaded over the catalog in the file `base`, which is not changed.

    Accounts, applications and devices of the document are ignored, and the hosts of connectors are
    not resolved. Raises LoadError, SQLAlchemyError or OSError.
    """
    path = base.with_name(f"{secrets.token_hex(4)}.sqlite3")
    shutil.copyfile(base, path)
    database = open_database(url_of(path))
    try:
        await load_document(database.write, _places_only(raw), _any_cipher(), limits=limits)
        yield database
    finally:
        await database.close()


def _any_cipher() -> Cipher:
    """A cipher with a random key, because nobody reads the secrets of the copy."""
    return open_cipher(secrets.token_urlsafe(32))


def _places_only(raw: bytes) -> bytes:
    """The document without accounts, applications and devices.

    A document that cannot be parsed is returned unchanged: the loader reports its faults.
    """
    try:
        document = orjson.loads(raw)
        for company in document["companies"]:
            for name in _NOT_PLACES:
                company.pop(name, None)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return raw
    return orjson.dumps(document)
