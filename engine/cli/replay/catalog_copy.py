"""A copy of SQL's catalog in a temporary file, for a document to be loaded over.

SQL itself is only read: a load in a transaction that is rolled back would hold its locks and use up
its ids.
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
# What a document may hold beside the catalog, and what decides nothing.
_NOT_PLACES = ("accounts", "applications", "devices")


def url_of(path: Path) -> str:
    """The url of a SQLite file."""
    return f"sqlite:///{path}"


async def make_empty(path: Path) -> None:
    """A file with the tables and nothing in them."""
    await migrate(url_of(path))


async def copy_catalog(source: Database, path: Path) -> None:
    """The catalog of `source` at one moment, into a new file: no devices, accounts or traces.

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
    """A database with a document loaded over the catalog in the file `base`, which stays as it is.

    Accounts, applications and devices of the document are left out, and where a connector leads is
    not looked up. Raises LoadError, SQLAlchemyError or OSError.
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
    """A cipher for secrets of the copy, which nobody will read."""
    return open_cipher(secrets.token_urlsafe(32))


def _places_only(raw: bytes) -> bytes:
    """The document without accounts, applications and devices. One that cannot be read here is
    returned as it is: the loader says what is wrong with it."""
    try:
        document = orjson.loads(raw)
        for company in document["companies"]:
            for name in _NOT_PLACES:
                company.pop(name, None)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return raw
    return orjson.dumps(document)
