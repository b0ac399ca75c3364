"""A page of records, by id."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

Record = dict[str, Any]


class Page(NamedTuple):
    """Up to `limit` records whose ids are greater than `after`."""

    after: int = 0
    limit: int = 500


ONE = Page(limit=1)


async def fetch(
    session: AsyncSession,
    columns: Select[*tuple[Any, ...]],
    key: InstrumentedAttribute[int],
    where: Sequence[ColumnElement[bool]],
    page: Page,
) -> list[Record]:
    """The rows of a page as objects, in order of `key`."""
    query = columns.where(*where, key > page.after).order_by(key).limit(page.limit)
    return [dict(row) for row in (await session.execute(query)).mappings()]


def with_texts(records: list[Record], names: Sequence[str]) -> list[Record]:
    """The records; a text that nobody filled is empty, as in the whole interface."""
    for record in records:
        for name in names:
            record[name] = record[name] or ""
    return records
