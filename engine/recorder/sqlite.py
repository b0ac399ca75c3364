"""The ledger on SQLite: rows are passed as one JSON list."""

import re

from sqlalchemy.ext.asyncio import AsyncEngine

from catalog.database import with_write_lock
from engine.recorder.ledger import Ledger, statements


def _rows_of(columns: str) -> str:
    values = []
    for column in columns.split(", "):
        name, type_ = column.split()
        value = _value(f"json_extract(value, '$.{name}')", type_)
        values.append(f"{value} AS {name}")
    return f"SELECT {', '.join(values)} FROM json_each($1)"  # noqa: S608  # columns of ours


def _value(text: str, type_: str) -> str:
    """The value in the form in which SQLAlchemy writes it into SQLite."""
    if type_ == "timestamptz":
        return f"strftime('%Y-%m-%d %H:%M:%f000', {text})"
    return f"replace({text}, '-', '')" if type_ == "uuid" else text


_SQL = {
    name: re.sub(r"\$(\d)", r"?\1", statement)
    for name, statement in statements(
        now=lambda _: _value("'now'", "timestamptz"),
        rows=_rows_of,
        list=lambda type_: f"SELECT {_value('value', type_)} FROM json_each($1)",  # noqa: S608
        each=lambda column: f"json_each({column}) AS item",
    ).items()
}


class SqliteLedger(Ledger):
    """One transaction writes at a time, others wait for it. `engine` is aiosqlite's."""

    _row_id, _among = "rowid", "IN ({})"
    _traces = ("detection_trace", "authentication_trace")
    _sql = _SQL

    def __init__(self, engine: AsyncEngine) -> None:
        super().__init__(with_write_lock(engine))
