"""Reads and writes records of one company.

Every query of the interface begins with `of_company`, and every change is made in `writing`: one
transaction with the outbox rows and the audit entry (CatalogSession adds both).
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import JSON, Select, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response, StreamingResponse

from api.answers import Answer, ApiError, bad_fields, not_found
from api.bodies import Listing
from api.permissions import Caller, Services
from catalog.database import Database
from catalog.errors import LimitError
from catalog.inputs import INT64
from catalog.models import Base, Venue

PAGE = 500
M = TypeVar("M", bound=Base)
Query = Select[M]


def of_company(model: type[M], company_id: int, venue_id: int | None = None) -> Query[M]:
    """A query for the company's records of a kind, or for those of one of its venues."""
    # Each table has `company_id`, or the `venue` that has it.
    table: Any = model
    if hasattr(table, "company_id"):
        query = select(model).where(table.company_id == company_id)
    else:
        query = select(model).join(table.venue).where(Venue.company_id == company_id)
    return query if venue_id is None else query.where(table.venue_id == venue_id)


async def find(session: AsyncSession, query: Query[M], number: int, *, lock: bool = False) -> M:
    """The record of a query by its id. Raises ApiError 404."""
    model: Any = query.column_descriptions[0]["entity"]
    query = query.where(model.id == number)
    found = await session.scalar(query.with_for_update(of=model) if lock else query)
    if found is None:
        raise not_found(model.__tablename__.replace("_", " "))
    return found


async def listed(
    caller: Caller,
    query: Query[M],
    answer: type[Answer],
    listing: Listing,
    *,
    venue_id: int | None = None,
    page: int = PAGE,
) -> Response:
    """A JSON array of the query's records, read and sent page by page. Raises ApiError.

    The header `x-total` says how many there are on all pages. Each page is a query of its own, so
    that a slow client holds no connection to SQL.
    """
    database, key = caller.services.database, query.column_descriptions[0]["entity"].id
    query, order = _chosen(query, answer, listing)
    async with database.read() as session:
        total = await session.scalar(query.with_only_columns(func.count(key)))
        if venue_id is not None and not total:
            await find(session, of_company(Venue, caller.company_id), venue_id)
    query = query.where(key > listing.after).order_by(order, key)
    pages = _pages(database, query, key, listing, page)
    return await streamed(json_array(pages, answer), "application/json", **{"x-total": str(total)})


_SEARCHED = ("name", "address", "uuid", "value", "udid", "email", "action")


def _chosen(query: Query[M], answer: type[Answer], listing: Listing) -> tuple[Query[M], Any]:
    """The query with the conditions, and the column to sort by. Raises ApiError 400."""
    columns = query.column_descriptions[0]["entity"].__mapper__.columns
    if listing.active is not None:
        if "active" not in columns:
            raise bad_fields({"active": "accepted: only for records that have this field"})
        query = query.where(columns["active"] == listing.active)
    if listing.search:
        searched = [columns[name] for name in _SEARCHED if name in columns]
        query = query.where(
            or_(*(each.icontains(listing.search, autoescape=True) for each in searched))
        )
    # Campaigns have the columns `start_at` and `end_at`.
    sortable = {
        name.removesuffix("_at"): column
        for name, column in columns.items()
        if name.removesuffix("_at") in answer.model_fields and not isinstance(column.type, JSON)
    }
    name = listing.sort.removeprefix("-")
    if name not in sortable:
        raise bad_fields({"sort": f"accepted: {', '.join(sortable)}"})
    order = sortable[name]
    return query, order.desc() if listing.sort.startswith("-") else order


async def _pages(
    database: Database, query: Query[Any], key: Any, listing: Listing, page: int
) -> AsyncIterator[Sequence[Any]]:
    left, after, offset = listing.limit or INT64, 0, listing.offset
    if listing.sort != "id":
        left = min(left, page)
    while left > 0:
        size = min(page, left)
        async with database.read() as session:
            chosen = query.where(key > after).offset(offset).limit(size)
            found = (await session.scalars(chosen)).all()
        yield found
        if len(found) < page:
            return
        after, offset, left = found[-1].id, 0, left - size


async def json_array(
    pages: AsyncIterator[Sequence[Any]], answer: type[Answer]
) -> AsyncIterator[bytes]:
    """A JSON array of the records of all pages."""
    answers: TypeAdapter[Any] = TypeAdapter(list[answer])  # type: ignore[valid-type]
    separator = b"["
    async for records in pages:
        if records:
            yield separator + answers.dump_json(answers.validate_python(records))[1:-1]
            separator = b","
    yield b"]" if separator == b"," else b"[]"


async def streamed(
    pieces: AsyncIterator[bytes], media_type: str, **headers: str
) -> StreamingResponse:
    """An answer that is sent piece by piece.

    The first piece is made before the answer begins, so that an error of SQL can be answered. An
    error in a later one ends the connection, so that a client cannot take a part for the whole.
    """
    first = await anext(pieces)

    async def all_pieces() -> AsyncIterator[bytes]:
        yield first
        async for piece in pieces:
            yield piece

    return StreamingResponse(all_pieces(), 200, headers, media_type)


@asynccontextmanager
async def writing(services: Services, *, dry: bool = False) -> AsyncIterator[AsyncSession]:
    """A transaction that is committed at the end; a dry run is rolled back.

    Lock in it what others may change. Raises ApiError (400 over a limit) and the errors of SQL.
    """
    try:
        async with services.database.write.begin() as session:
            yield session
            if dry:
                await session.rollback()
    except LimitError as error:
        if error.field:
            raise bad_fields({error.field: str(error)}) from None
        raise ApiError(400, str(error)) from None


def assign(record: Base, values: Mapping[str, Any]) -> None:
    """Set attributes of a record."""
    for name, value in values.items():
        setattr(record, name, value)
