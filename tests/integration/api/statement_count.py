"""Counts statements to SQL."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from sqlalchemy import event

from catalog.database import Database
from catalog.driver_reading import DriverReading


@contextmanager
def counted(database: Database) -> Iterator[list[str]]:
    """The statements that are executed within the context, without BEGIN."""
    statements: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if not statement.startswith("BEGIN"):
            statements.append(statement)

    def note_driver(reading: DriverReading, *arguments: Any) -> list[dict[str, Any]]:
        statements.append(reading.text)
        return rows(reading, *arguments)

    engine, rows = database.engine.sync_engine, DriverReading.rows
    event.listen(engine, "before_cursor_execute", note)
    with patch.object(DriverReading, "rows", note_driver):
        yield statements
    event.remove(engine, "before_cursor_execute", note)
