"""Readings select what a session selects: no deleted records, and one company's records only."""

import importlib
import pkgutil
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BindParameter, String, event
from sqlalchemy.sql import visitors

import api
from catalog.database import Database, open_database
from catalog.models import Beacon, Campaign, Geofence, Venue
from catalog.models.base import Instant
from catalog.reading import Reader, Reading, read
from tests.servers.schema import make_schema

HIDDEN = {model.__tablename__ for model in (Venue, Beacon, Geofence, Campaign)}
# What follows from a record that was read before, or is the caller's own.
FOLLOWING = {"account", "beacons", "campaigns", "device"}
OF_A_PAGE = {"after", "at", "before", "limit"}
NOW = datetime(2026, 11, 20, tzinfo=UTC)


def readings() -> list[Reading]:
    """Every one of the interface, by itself or within an object of the interface."""
    found: list[Any] = []
    for module in pkgutil.walk_packages(api.__path__, "api."):
        for value in vars(importlib.import_module(module.name)).values():
            of_ours = type(value).__module__.startswith("api.")
            found += [value, *(getattr(value, "__dict__", {}).values() if of_ours else ())]
    different = {id(each): each for each in found if isinstance(each, Reading)}
    assert len(different) > 20
    return list(different.values())


def parameters(reading: Reading) -> dict[str, Any]:
    """A value for each parameter."""
    made: dict[str, Any] = {}
    for each in visitors.iterate(reading.query, {}):
        if isinstance(each, BindParameter) and each.required:
            value: Any = "x" if isinstance(each.type, String) else 1
            value = NOW if isinstance(each.type, Instant) else value
            made[each.key] = [value] if each.expanding else value
    return made


def test_each_is_of_one_company_or_follows_from_what_is() -> None:
    for reading in readings():
        names = set(parameters(reading))
        assert "company" in names or names - OF_A_PAGE <= FOLLOWING, str(reading.query)


@pytest.fixture
async def database(sqlite_url: str) -> AsyncIterator[Database]:
    await make_schema(sqlite_url)
    opened = open_database(sqlite_url)
    yield opened
    await opened.close()


def _rows(reading: Reading, values: dict[str, Any], reader: Reader) -> None:
    reader.rows(reading, **values)


async def test_each_selects_what_a_session_selects(database: Database) -> None:
    executed: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, values: Any, *_rest: Any) -> None:
        if not statement.startswith("BEGIN"):
            executed.append((statement, values))

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    for reading in readings():
        executed.clear()
        values = parameters(reading)
        await read(database, partial(_rows, reading, values))
        async with database.autocommit() as session:
            await session.execute(reading.query, values)
        by_reader, by_session = executed
        assert by_reader == by_session
        named = {getattr(each, "name", "") for each in visitors.iterate(reading.query, {})}
        for table in set() if reading.deleted else HIDDEN & named:
            assert f"{table}.deleted_at IS NULL" in by_reader[0]


def test_nothing_else_gets_to_the_connection() -> None:
    """A statement that was not made as a reading might forget what is deleted."""
    assert {name for name in vars(Reader) if not name.startswith("_")} == {"row", "rows"}
    modules = Path(api.__file__).parent.rglob("*.py")
    bare = re.compile(r"\bdatabase\.engine\b")
    assert [path for path in modules if bare.search(path.read_text())] == []
