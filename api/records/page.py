"""A page of records, by id."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Select, inspect, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from api.answers import Answer, Record, fill_texts
from api.errors import not_found
from catalog.models import Base

Where = Sequence[ColumnElement[bool]]
ReadPage = Callable[[AsyncSession, Where, "Page"], Awaitable[list[Record]]]


class Page(NamedTuple):
    """Up to `limit` records whose ids are greater than `after`."""

    after: int = 0
    limit: int = 500


def columns_of(answer: type[Answer], model: type[Base], *others: Any) -> Select[*tuple[Any, ...]]:
    """A query for the columns of `model` that an answer names, and for `others`."""
    known = inspect(model).column_attrs
    return select(*others, *(getattr(model, name) for name in answer.model_fields if name in known))


async def fetch(
    session: AsyncSession,
    answer: type[Answer],
    columns: Select[*tuple[Any, ...]],
    key: InstrumentedAttribute[int],
    where: Where,
    page: Page,
) -> list[Record]:
    """The rows of a page as objects, in order of `key`; null texts are empty."""
    query = columns.where(*where, key > page.after).order_by(key).limit(page.limit)
    found = [dict(row) for row in (await session.execute(query)).mappings()]
    fill_texts(found, answer)
    return found


async def fetch_one(session: AsyncSession, read: ReadPage, where: Where, what: str) -> Record:
    """The only record. Raises ApiError 404."""
    found = await read(session, where, Page(limit=1))
    if not found:
        raise not_found(what)
    return found[0]
