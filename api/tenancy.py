"""Reads and writes records of one company.

Every query of the interface begins with `of_company`, and every change goes through `write`: one
transaction with the outbox rows and the audit entry (CatalogSession adds both), then the outbox is
drained.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import structlog
from fastapi import APIRouter
from pydantic import AfterValidator, Field, TypeAdapter
from sqlalchemy import Select, or_, select, tuple_
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response, StreamingResponse

from api.answers import INT64, Answer, ApiError, DoneAnswer, bad_fields, not_found, unavailable
from api.bodies import After, Limit, RecordId, VenueId
from api.permissions import AuthorizedCaller, may_read, may_write
from api.services import Services
from catalog.database import is_lock_conflict
from catalog.errors import LimitError
from catalog.fields import Fields, integer
from catalog.inputs import Name, Triple, TripleFields
from catalog.models import Base, Beacon, Geofence, Tag, Venue

_log = structlog.get_logger(__name__)
_TRIES = 4
PAGE = 500
T = TypeVar("T")
M = TypeVar("M", bound=Base)
A = TypeVar("A", bound=Answer)
Query = Select[M]


def of_company(model: type[M], company_id: int, venue_id: int | None = None) -> Query[M]:
    """A query for the company's records of a kind, or for those of one of its venues."""
    # Each table has `company_id`, or the `venue` that has it.
    table: Any = model
    if hasattr(table, "company_id"):
        return select(model).where(table.company_id == company_id)
    query = select(model).join(table.venue).where(Venue.company_id == company_id)
    return query if venue_id is None else query.where(table.venue_id == venue_id)


async def find(session: AsyncSession, query: Query[M], number: int, *, lock: bool = False) -> M:
    """The record of a query by its id. Raises ApiError 404."""
    model: Any = query.column_descriptions[0]["entity"]
    query = query.where(model.id == number)
    found = await session.scalar(query.with_for_update(of=model) if lock else query)
    if found is None:
        raise not_found(model.__tablename__)
    return found


async def written(session: AsyncSession, query: Query[M], number: int) -> M:
    """The record as the transaction has written it, its relations in order."""
    await session.flush()
    return await find(session, query.execution_options(populate_existing=True), number)


async def find_venue(
    session: AsyncSession, company_id: int, venue_id: int, *, lock: bool = False
) -> Venue:
    """A venue of the company. Raises ApiError 404."""
    return await find(session, of_company(Venue, company_id), venue_id, lock=lock)


async def listed(
    caller: AuthorizedCaller,
    query: Query[M],
    answer: type[Answer],
    *,
    after: int,
    limit: int | None,
    venue_id: int | None = None,
    page: int = PAGE,
) -> Response:
    """A JSON array of the query's records in order of id, read and sent page by page.

    Raises ApiError 404 if there are none because the company has no such venue. Each page is a
    query of its own, so that a slow client holds no connection to SQL. An error in a later page
    ends the connection, so that a client cannot take a part of the list for the whole.
    """
    pages = _pages(caller.services, query, answer, after, limit, page)
    first = await anext(pages, b"")
    if venue_id is not None and not first:
        async with caller.services.database.autocommit() as session:
            await find_venue(session, caller.company_id, venue_id)
    return StreamingResponse(_joined(first, pages), media_type="application/json")


async def _pages(
    services: Services,
    query: Query[Any],
    answer: type[Answer],
    after: int,
    left: int | None,
    page: int,
) -> AsyncIterator[bytes]:
    """The objects of each page, separated by commas."""
    answers: TypeAdapter[Any] = TypeAdapter(list[answer])  # type: ignore[valid-type]
    key = query.column_descriptions[0]["entity"].id
    while left != 0:
        size = page if left is None else min(page, left)
        async with services.database.autocommit() as session:
            records = await session.scalars(query.where(key > after).order_by(key).limit(size))
            found = records.all()
        if found:
            yield answers.dump_json(answers.validate_python(found))[1:-1]
        if len(found) < page:
            return
        after = found[-1].id
        left = None if left is None else left - len(found)


async def _joined(first: bytes, pages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield b"[" + first
    async for records in pages:
        yield b"," + records
    yield b"]"


async def write(services: Services, work: Callable[[AsyncSession], Awaitable[T]]) -> T:
    """Run `work` in a transaction, commit, and have the outbox drained.

    After a conflict with another writer `work` runs again from the beginning. Raises ApiError (409
    if the triple of a beacon is taken, 400 over a limit) and the errors of SQL.
    """
    for _ in range(_TRIES):
        try:
            async with services.database.write.begin() as session:
                result = await work(session)
        except LimitError as error:
            if error.field:
                raise bad_fields({error.field: str(error)}) from None
            raise ApiError(400, str(error)) from None
        except DBAPIError as error:
            if _is_triple(error):
                raise ApiError(409, "the triple uuid, major, minor is taken") from None
            # An integrity error: meanwhile a tag of this name was added, or a parent was deleted.
            if not isinstance(error, IntegrityError) and not is_lock_conflict(error):
                raise
            _log.info("writing again", error=str(error.orig).partition("\n")[0])
        else:
            services.nudge()
            return result
    raise unavailable("the record is being changed by too many at once")


async def shown(caller: AuthorizedCaller, query: Query[M], answer: type[A], number: int) -> A:
    """The answer with one record. Raises ApiError 404."""
    async with caller.services.database.autocommit() as session:
        return answer.model_validate(await find(session, query, number))


async def created(
    caller: AuthorizedCaller,
    model: type[M],
    answer: type[A],
    values: Mapping[str, Any],
    venue_id: int | None = None,
) -> A:
    """Add a record of the company, or of its venue: ApiError 404. Returns the answer with it."""

    async def work(session: AsyncSession) -> A:
        owner = {"company_id": caller.company_id}
        if venue_id is not None:
            await find_venue(session, caller.company_id, venue_id, lock=True)
            owner = {"venue_id": venue_id}
        record = model(**values, **owner)
        session.add(record)
        await session.flush()
        return answer.model_validate(record)

    return await write(caller.services, work)


async def edited(
    caller: AuthorizedCaller,
    query: Query[M],
    answer: type[A],
    number: int,
    values: Mapping[str, Any],
) -> A:
    """Set attributes of a record, and return the answer with it. Raises ApiError 404."""

    async def work(session: AsyncSession) -> A:
        assign(await find(session, query, number, lock=True), values)
        return answer.model_validate(await written(session, query, number))

    return await write(caller.services, work)


async def deleted(caller: AuthorizedCaller, query: Query[M], number: int) -> DoneAnswer:
    """Delete a record. Raises ApiError 404."""

    async def work(session: AsyncSession) -> None:
        await session.delete(await find(session, query, number, lock=True))

    await write(caller.services, work)
    return DoneAnswer()


def add_shared_operations(
    router: APIRouter,
    path: str,
    kind: str,
    query: Callable[[AuthorizedCaller, int], Query[M]],
    answer: type[Answer],
    page: int = PAGE,
) -> None:
    """Add the operations that are the same for all records of a venue: list, get, delete."""
    one = f"{path}/{{uid}}"

    @router.get(
        path,
        tags=[kind],
        response_model=list[answer],  # type: ignore[valid-type]
        name=f"list_{kind}s",
        description=f"The {kind}s of the venue.",
    )
    async def list_records(
        caller: Annotated[AuthorizedCaller, may_read(kind)],
        venue_id: VenueId,
        limit: Limit = None,
        after: After = 0,
    ) -> Response:
        found = query(caller, venue_id)
        return await listed(
            caller, found, answer, after=after, limit=limit, venue_id=venue_id, page=page
        )

    @router.get(
        one, tags=[kind], response_model=answer, name=f"get_{kind}", description=f"One {kind}."
    )
    async def get_record(
        caller: Annotated[AuthorizedCaller, may_read(kind)], venue_id: VenueId, number: RecordId
    ) -> Answer:
        return await shown(caller, query(caller, venue_id), answer, number)

    @router.delete(
        one,
        tags=[kind],
        name=f"delete_{kind}",
        description=f"Delete the {kind}. Nothing fires by it any more.",
    )
    async def delete_record(
        caller: Annotated[AuthorizedCaller, may_write(kind)], venue_id: VenueId, number: RecordId
    ) -> DoneAnswer:
        return await deleted(caller, query(caller, venue_id), number)


def assign(record: Base, values: Mapping[str, Any]) -> None:
    """Set the record's attributes."""
    for name, value in values.items():
        setattr(record, name, value)


def _is_triple(error: DBAPIError) -> bool:
    cause = getattr(error.orig, "__cause__", None)
    constraint = getattr(cause, "constraint_name", None)
    if constraint is not None:
        return bool(constraint == "uq_beacon_uuid_major_minor")
    return "beacon.uuid, beacon.major, beacon.minor" in str(error.orig)


# References to other records in bodies: a tag by its name (created if it is new) or id, a beacon by
# its id or triple, a geofence by its id. All must belong to the company.

_MOST = 1000
Reference = int | str | Triple
Id = Annotated[int, integer(1, INT64)]


class RecordById(Fields):
    """A record of the company by its id."""

    id: Id


class TagByName(Fields):
    """A tag of the company by its name; a new name creates a tag."""

    name: Name


def _listed(accepted: str) -> Any:
    return Field(max_length=_MOST, description=f"a list of at most {_MOST} {accepted}")


_KINDS: dict[str, tuple[Any, str]] = {
    "tags": (Tag, "tag"),
    "beacons": (Beacon, "beacon"),
    "geofencings": (Geofence, "geofence"),
}
IN_ORDER = Field(union_mode="left_to_right")
ById = Annotated[RecordById, AfterValidator(lambda record: record.id)]
ByName = Annotated[TagByName, AfterValidator(lambda tag: tag.name)]
ByTriple = Annotated[TripleFields, AfterValidator(lambda b: Triple(b.uuid, b.major, b.minor))]
Tags = Annotated[
    list[Annotated[ByName | ById | Name, IN_ORDER]],
    _listed('objects {"name": string} or {"id": integer}, or names'),
]
Beacons = Annotated[
    list[Annotated[ById | ByTriple | Id, IN_ORDER]],
    _listed("beacons by id, or by uuid, major and minor"),
]
Geofences = Annotated[list[Annotated[ById | Id, IN_ORDER]], _listed("geofences by id")]


async def find_referenced(
    session: AsyncSession, company_id: int, field: str, references: Sequence[Reference]
) -> list[Any]:
    """The records that the references in `field` name; new tags are added to the session.

    Raises ApiError 400 for what is not the company's.
    """
    model, what = _KINDS[field]
    ids = [each for each in references if isinstance(each, int)]
    names = [each for each in references if isinstance(each, str)]
    triples = [each for each in references if isinstance(each, Triple)]
    conditions = [model.id.in_(ids)]
    if names:
        conditions.append(Tag.name.in_(names))
    if triples:
        conditions.append(tuple_(Beacon.uuid, Beacon.major, Beacon.minor).in_(triples))
    found: dict[Reference, Any] = {}
    for record in await session.scalars(of_company(model, company_id).where(or_(*conditions))):
        found[record.id] = record
        if isinstance(record, Tag):
            found[record.name] = record
        if isinstance(record, Beacon):
            found[Triple(record.uuid, record.major, record.minor)] = record
    for name in names:
        if name not in found:
            found[name] = Tag(company_id=company_id, name=name)
            session.add(found[name])
    unknown = {
        f"{field}[{place}]": f"{reference}: not a {what} of this company"
        for place, reference in enumerate(references)
        if reference not in found
    }
    if unknown:
        raise bad_fields(unknown)
    # Two references may name the same record.
    return list(dict.fromkeys(found[reference] for reference in references))
