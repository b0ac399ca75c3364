"""Reads and writes records of one company.

Every query of the interface begins with `of_company`, and every change goes through `write`: one
transaction with the outbox rows and the audit entry (CatalogSession adds both), then the outbox is
drained.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import structlog
from pydantic import TypeAdapter
from sqlalchemy import JSON, Select, func, or_, select
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response, StreamingResponse

from api.answers import Answer, ApiError, bad_fields, not_found, unavailable
from api.bodies import Listing
from api.permissions import AuthorizedCaller, Services
from catalog.database import Database, chunked, is_lock_conflict
from catalog.errors import LimitError
from catalog.models import Base, Venue

_log = structlog.get_logger(__name__)
_TRIES = 4
PAGE = 500
T = TypeVar("T")
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


async def written(session: AsyncSession, query: Query[M], numbers: Sequence[int]) -> list[M]:
    """The records as the transaction has written them, in order, with all that the query loads."""
    await session.flush()
    model: Any = query.column_descriptions[0]["entity"]
    found: dict[int, M] = {}
    for chunk in chunked(numbers, PAGE):
        part = query.where(model.id.in_(chunk)).execution_options(populate_existing=True)
        found |= {record.id: record for record in await session.scalars(part)}  # type: ignore[attr-defined]
    return [found[number] for number in numbers]


async def find_venue(
    session: AsyncSession, company_id: int, venue_id: int, *, lock: bool = False
) -> Venue:
    """A venue of the company. Raises ApiError 404."""
    return await find(session, of_company(Venue, company_id), venue_id, lock=lock)


async def listed(
    caller: AuthorizedCaller,
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
    async with database.autocommit() as session:
        total = await session.scalar(query.with_only_columns(func.count(key)))
        if venue_id is not None and not total:
            await find_venue(session, caller.company_id, venue_id)
    pages = _pages(database, query.where(key > listing.after), answer, listing, order, page)
    return await streamed(json_array(pages), "application/json", **{"x-total": str(total)})


_SEARCHED = ("name", "address", "uuid", "value", "udid", "email")


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
    database: Database,
    query: Query[Any],
    answer: type[Answer],
    listing: Listing,
    order: Any,
    page: int,
) -> AsyncIterator[bytes]:
    """The objects of each page, separated by commas."""
    answers: TypeAdapter[Any] = TypeAdapter(list[answer])  # type: ignore[valid-type]
    key = query.column_descriptions[0]["entity"].id
    left, after, offset = listing.limit, 0, listing.offset
    if listing.sort != "id":
        left = page = min(left or page, page)
    while left != 0:
        size = page if left is None else min(page, left)
        chosen = query.where(key > after).order_by(order, key).offset(offset).limit(size)
        async with database.autocommit() as session:
            found = (await session.scalars(chosen)).all()
        if found:
            yield answers.dump_json(answers.validate_python(found))[1:-1]
        if len(found) < page:
            return
        after, offset = found[-1].id, 0
        left = None if left is None else left - len(found)


async def json_array(pages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A JSON array of the objects of each page, which commas separate."""
    separator = b"["
    async for records in pages:
        yield separator + records
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


async def write(
    services: Services, work: Callable[[AsyncSession], Awaitable[T]], *, dry: bool = False
) -> T:
    """Run `work` in a transaction, commit, and have the outbox drained; a dry run is rolled back.

    After a conflict with another writer `work` runs again from the beginning. Raises ApiError (409
    if a beacon's triple or a tag's value is taken, 400 over a limit) and the errors of SQL.
    """
    for _ in range(_TRIES):
        try:
            async with services.database.write.begin() as session:
                result = await work(session)
                if dry:
                    await session.rollback()
        except LimitError as error:
            if error.field:
                raise bad_fields({error.field: str(error)}) from None
            raise ApiError(400, str(error)) from None
        except DBAPIError as error:
            if (taken := _taken(error)) is not None:
                raise ApiError(409, f"the {taken} is taken") from None
            # An integrity error: meanwhile a tag of this name was added, or a parent was deleted.
            if not isinstance(error, IntegrityError) and not is_lock_conflict(error):
                raise
            _log.info("writing again", error=str(error.orig).partition("\n")[0])
        else:
            services.nudge()
            return result
    raise unavailable("the record is being changed by too many at once")


_UNIQUE = {  # by PostgreSQL's name and by SQLite's
    "uq_beacon_uuid_major_minor": "triple uuid, major, minor",
    "beacon.uuid, beacon.major, beacon.minor": "triple uuid, major, minor",
    "uq_scan_tag_company_id_kind_value": "value",
    "scan_tag.company_id, scan_tag.kind, scan_tag.value": "value",
}


def _taken(error: DBAPIError) -> str | None:
    cause = getattr(error.orig, "__cause__", None)
    violated = getattr(cause, "constraint_name", None) or str(error.orig).rpartition(": ")[2]
    return _UNIQUE.get(violated)
