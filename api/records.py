"""The operations that all kinds of records share: list, create, get, edit, delete.

A new kind of record is a `Records`, and a call of `add_operations`. Its fields may refer to other
records: a tag by its name (created if it is new) or id, a beacon by its id or triple, another place
by its id. All must belong to the company, and other places than beacons to the campaign's venue.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, NamedTuple

from fastapi import APIRouter, Depends
from pydantic import AfterValidator, Field
from sqlalchemy import or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import INT64, Answer, ApiError, DoneAnswer, Record, bad_fields
from api.bodies import (
    LISTING,
    DryRun,
    Listing,
    OwnId,
    RecordId,
    VenueId,
    accepts,
    at_place,
    raise_faults,
)
from api.permissions import AuthorizedCaller, may_read, may_write
from api.tenancy import (
    PAGE,
    M,
    Query,
    all_written,
    find,
    find_venue,
    listed,
    of_company,
    write,
    written,
)
from catalog.fields import Conflicts, Faults, Fields, Name, read_fields
from catalog.inputs import ByName, Triple, TripleFields
from catalog.limits import lock_company
from catalog.models import Beacon, Geofence, ScanTag, Tag
from catalog.session import RESTORABLE, undelete, with_deleted


class Place(NamedTuple):
    """The records that a path names: those of a venue or of the company, or one of them."""

    venue_id: int | None = None
    number: int = 0


Values = Mapping[str, Any]


async def _as_given(_session: Any, _caller: Any, values: Values, _record: Any) -> Values:
    return values


async def _unlimited(*_: Any) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Records(Generic[M]):
    """A kind of record: its paths, its fields, and what is special about writing it.

    Records whose path has a venue's id belong to the venue, others to the company.

    - `edited` are the fields of a PUT, if they differ from those of a POST, `created`.
    - `about` adds to the descriptions of the operations, by their names.
    - `where` are conditions of the records in a table that holds several kinds.
    - `options` load what the answer shows; a list is read `page` records at a time.
    - `conflicts` finds faults in the combination of a new record's fields.
    - `columns` are the attributes to set for values, those of a new record if there is none yet.
    - `check` raises LimitError over a limit, given what `scope` was before; None if it is new.
      `check_size` does after additions, given one of the new records.
    - With `listed` a POST may have a list of records. `unique` are the attributes of which no two
      records have the same.
    """

    kind: str
    path: str
    tag: str = ""
    model: type[M]
    answer: type[Answer]
    created: type[Fields]
    edited: type[Fields] | None = None
    example: Record
    about: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[Any] = ()
    where: Sequence[Any] = ()
    page: int = PAGE
    conflicts: Conflicts = lambda _: ()
    columns: Callable[[AsyncSession, AuthorizedCaller, Values, M | None], Awaitable[Values]] = (
        _as_given
    )
    scope: Callable[[M], Any] = lambda _: None
    check: Callable[[AsyncSession, AuthorizedCaller, M, Any], Awaitable[None]] = _unlimited
    check_size: Callable[[AsyncSession, AuthorizedCaller, M], Awaitable[None]] = _unlimited
    listed: bool = False
    unique: tuple[str, ...] = ()

    @property
    def creation(self) -> Any:
        """The type of the answer to a POST."""
        return self.answer | list[self.answer] if self.listed else self.answer  # type: ignore[name-defined]

    def query(self, caller: AuthorizedCaller, venue_id: int | None) -> Query[M]:
        """The records in a place, with what their answers show."""
        query = of_company(self.model, caller.company_id, venue_id).where(*self.where)
        return query.options(*self.options)

    async def get(self, caller: AuthorizedCaller, place: Place) -> Answer:
        """One record. Raises ApiError 404, as `edit` and `delete` do."""
        async with caller.services.database.autocommit() as session:
            found = await find(session, self.query(caller, place.venue_id), place.number)
            return self.answer.model_validate(found)

    async def create(
        self, caller: AuthorizedCaller, place: Place, *, dry: bool
    ) -> Answer | list[Answer]:
        """Add the record in the body, or all records of the list in it; a dry run adds none.

        Raises ApiError, 404 if there is no such venue. Faults in a list begin with an index: [3].
        """
        body = await (caller.listed() if self.listed else caller.body())
        given = body if isinstance(body, list) else [body]
        places = [f"[{number}]" if body is given else "" for number in range(len(given))]
        faults, values = Faults(), []
        for each, at in zip(given, places, strict=True):
            values.append(read_fields(self.created, each, place=at, faults=faults))
            faults.note_conflicts(at, self.conflicts(values[-1]))
        raise_faults(faults)
        query = self.query(caller, place.venue_id)

        async def work(session: AsyncSession) -> list[Answer]:
            await lock_company(session, caller.company_id)
            owner = {"company_id": caller.company_id}
            if place.venue_id is not None:
                await find_venue(session, caller.company_id, place.venue_id, lock=True)
                owner = {"venue_id": place.venue_id}
            if body is given:
                if self.unique:
                    await self._refuse_taken(session, caller, values)
                await _add_tags(session, caller.company_id, values)
            records: list[Any] = []
            for each, at in zip(values, places, strict=True):
                with at_place(at):
                    columns = await self.columns(session, caller, each | owner, None)
                records.append(self.model(**columns))
            session.add_all(records)
            await session.flush()
            await self.check_size(session, caller, records[0])
            for record, at in zip(records, places, strict=True):
                with at_place(at):
                    await self.check(session, caller, record, None)
            numbers = [record.id for record in records]
            return [
                self.answer.model_validate(each)
                for each in await all_written(session, query, numbers)
            ]

        made = await write(caller.services, work, dry=dry)
        return made if body is given else made[0]

    async def _refuse_taken(
        self, session: AsyncSession, caller: AuthorizedCaller, values: Sequence[Values]
    ) -> None:
        """Raise ApiError 409 if records of a list have the same unique attributes as others."""
        columns = [getattr(self.model, name) for name in self.unique]
        keys = [tuple(each[name] for name in self.unique) for each in values]
        taken = select(*columns).where(tuple_(*columns).in_(keys), *self.where)
        if (company := getattr(self.model, "company_id", None)) is not None:
            taken = taken.where(company == caller.company_id)
        seen = {tuple(row): "taken" for row in await session.execute(taken)}
        faults = {}
        for number, key in enumerate(keys):
            if key in seen:
                faults[f"[{number}].{self.unique[-1]}"] = seen[key]
            seen.setdefault(key, f"the same as [{number}]")
        if faults:
            raise ApiError(409, f"the {', '.join(self.unique)} is taken", fields=faults)

    async def edit(self, caller: AuthorizedCaller, place: Place, *, dry: bool) -> Answer:
        """Set the fields in the body; others stay as they are. A dry run sets none."""
        values = await caller.values(self.edited or self.created)
        query = self.query(caller, place.venue_id)

        async def work(session: AsyncSession) -> Answer:
            await lock_company(session, caller.company_id)
            record = await find(session, query, place.number, lock=True)
            before = self.scope(record)
            for name, value in (await self.columns(session, caller, values, record)).items():
                setattr(record, name, value)
            await session.flush()
            await self.check(session, caller, record, before)
            return self.answer.model_validate(await written(session, query, place.number))

        return await write(caller.services, work, dry=dry)

    async def delete(self, caller: AuthorizedCaller, place: Place) -> DoneAnswer:
        """Delete a record."""
        query = self.query(caller, place.venue_id)

        async def work(session: AsyncSession) -> None:
            await session.delete(await find(session, query, place.number, lock=True))

        await write(caller.services, work)
        return DoneAnswer()

    async def restore(self, caller: AuthorizedCaller, place: Place) -> Answer:
        """Bring back a record that was deleted in the last 30 days; a venue with its records.

        Raises ApiError: 404 if there is none, 409 if its name or what makes it unique is taken.
        """
        query = self.query(caller, place.venue_id)
        since = caller.services.clock() - RESTORABLE

        async def work(session: AsyncSession) -> Answer:
            await lock_company(session, caller.company_id)
            if place.venue_id is not None:
                await find_venue(session, caller.company_id, place.venue_id, lock=True)
            model: Any = self.model
            deleted = of_company(self.model, caller.company_id, place.venue_id)
            deleted = with_deleted(deleted.where(model.deleted_at >= since, *self.where))
            record: Any = await find(session, deleted, place.number, lock=True)
            if await session.scalar(query.where(model.name == record.name).limit(1)):
                raise ApiError(409, "the name is taken")
            await undelete(session, record)
            found = await written(session, query, place.number)
            await self.check_size(session, caller, found)
            await self.check(session, caller, found, None)
            return self.answer.model_validate(found)

        return await write(caller.services, work)


def _of_company() -> Place:
    return Place()


def _of_venue(venue_id: VenueId) -> Place:
    return Place(venue_id)


def _one_of_company(number: OwnId) -> Place:
    return Place(None, number)


def _one_of_venue(venue_id: VenueId, number: RecordId) -> Place:
    return Place(venue_id, number)


def _addresses(path: str) -> tuple[str, Any, Any]:
    """The path of one record, and the dependencies that read both paths."""
    if "{id}" in path:
        return f"{path}/{{uid}}", Depends(_of_venue), Depends(_one_of_venue)
    return f"{path}/{{id}}", Depends(_of_company), Depends(_one_of_company)


def add_operations(
    router: APIRouter, records: Records[Any], *, whole: bool = True, other_path: str = ""
) -> None:
    """Add the operations to a router. `other_path` creates a record, too.

    Unless `whole`, there is no operation for reading one record, nor for restoring it.
    """
    kind, path, answer = records.kind, records.path, records.answer
    one, all_of, one_of = _addresses(path)
    reader, writer = may_read(kind), may_write(kind)

    async def list_all(
        caller: AuthorizedCaller = reader,
        place: Place = all_of,
        listing: Listing = LISTING,
    ) -> Response:
        query = records.query(caller, place.venue_id)
        venue, page = place.venue_id, records.page
        return await listed(caller, query, answer, listing, venue_id=venue, page=page)

    async def create(
        caller: AuthorizedCaller = writer, place: Place = all_of, dry: DryRun = False
    ) -> Answer | list[Answer]:
        return await records.create(caller, place, dry=dry)

    async def get(caller: AuthorizedCaller = reader, place: Place = one_of) -> Answer:
        return await records.get(caller, place)

    async def edit(
        caller: AuthorizedCaller = writer, place: Place = one_of, dry: DryRun = False
    ) -> Answer:
        return await records.edit(caller, place, dry=dry)

    async def delete(caller: AuthorizedCaller = writer, place: Place = one_of) -> DoneAnswer:
        return await records.delete(caller, place)

    async def restore(caller: AuthorizedCaller = writer, place: Place = one_of) -> Answer:
        return await records.restore(caller, place)

    def add(verb: str, method: str, at: str, work: Any, shown: Any, text: str, **more: Any) -> None:
        text = f"{text} {records.about.get(verb, '')}".strip()
        name = f"{verb}_{kind}s" if verb == "list" else f"{verb}_{kind}"
        more = {"name": name, "summary": name.replace("_", " ").title(), **more}
        router.add_api_route(
            at,
            work,
            methods=[method],
            response_model=shown,
            description=text,
            tags=[records.tag or kind],
            **more,
        )

    changes: Record = {"openapi_extra": accepts(records.edited or records.created, records.example)}
    several: Any = list[answer]  # type: ignore[valid-type]
    body: Record = {
        "openapi_extra": accepts(records.created, records.example, listed=records.listed)
    }
    text = f"Create a new {kind}."
    add("list", "GET", path, list_all, several, f"The {kind}s.")
    add("create", "POST", path, create, records.creation, text, status_code=201, **body)
    if other_path:
        body["name"] = f"create_{kind}_by_its_other_path"
        add("create", "POST", other_path, create, answer, text, status_code=201, **body)
    text = f"Change the {kind}. Optional fields that are not given stay as they are."
    add("edit", "PUT", one, edit, answer, text, **changes)
    add("delete", "DELETE", one, delete, DoneAnswer, f"Delete the {kind}.")
    if whole:
        add("get", "GET", one, get, answer, f"One {kind}.")
        text = f"Bring back a {kind} that was deleted in the last {RESTORABLE.days} days."
        add("restore", "POST", f"{one}/restore", restore, answer, text)


async def _add_tags(session: AsyncSession, company_id: int, values: Sequence[Values]) -> None:
    """Add the new tags of a list, so that its records find them."""
    tags = {tag for each in values for tag in each.get("tags", ()) if isinstance(tag, str)}
    if len(tags) > _MOST:
        raise bad_fields({"tags": f"accepted: at most {_MOST} different tags in a list"})
    await find_referenced(session, company_id, "tags", sorted(tags))
    await session.flush()


_MOST = 1000
Reference = int | str | Triple
Id = Annotated[int, Field(ge=1, le=INT64)]


class RecordById(Fields):
    """A record of the company by its id."""

    id: Id


def _listed(accepted: str) -> Any:
    return Field(max_length=_MOST, description=f"a list of at most {_MOST} {accepted}")


_KINDS: dict[str, tuple[Any, str]] = {
    "tags": (Tag, "tag"),
    "beacons": (Beacon, "beacon"),
    "geofencings": (Geofence, "geofence"),
    "nfcs": (ScanTag, "nfc"),
    "qrcodes": (ScanTag, "qrcode"),
}
_OF_VENUE = ("geofencings", "nfcs", "qrcodes")
IN_ORDER = Field(union_mode="left_to_right")
ById = Annotated[RecordById, AfterValidator(lambda record: record.id)]
ByTriple = Annotated[TripleFields, AfterValidator(lambda b: Triple(b.uuid, b.major, b.minor))]
Tags = Annotated[
    list[Annotated[ByName | ById | Name, IN_ORDER]],
    _listed('objects {"name": string} or {"id": integer}, or names'),
]
Beacons = Annotated[
    list[Annotated[ById | ByTriple | Id, IN_ORDER]],
    _listed("beacons by id, or by uuid, major and minor"),
]
Places = Annotated[list[Annotated[ById | Id, IN_ORDER]], _listed("places of the venue by id")]


async def referenced(
    session: AsyncSession, company_id: int, values: Mapping[str, Any], venue_id: int | None = None
) -> dict[str, list[Any]]:
    """The records that the references among the values name, by attribute. Raises ApiError 400.

    With `venue_id`, places other than beacons must be that venue's.
    """
    return {
        field: await find_referenced(session, company_id, field, values[field], venue_id)
        for field in _KINDS
        if field in values
    }


async def find_referenced(
    session: AsyncSession,
    company_id: int,
    field: str,
    references: Sequence[Reference],
    venue_id: int | None = None,
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
    query = of_company(model, company_id, venue_id if field in _OF_VENUE else None)
    if model is ScanTag:
        query = query.where(ScanTag.kind == what)
    for record in await session.scalars(query.where(or_(*conditions))):
        found[record.id] = record
        if isinstance(record, Tag):
            found[record.name] = record
        if isinstance(record, Beacon):
            found[Triple(record.uuid, record.major, record.minor)] = record
    for name in names:
        if name not in found:
            found[name] = Tag(company_id=company_id, name=name)
            session.add(found[name])
    owner = "venue" if venue_id is not None and field in _OF_VENUE else "company"
    unknown = {
        f"{field}[{place}]": f"{reference}: not a {what} of this {owner}"
        for place, reference in enumerate(references)
        if reference not in found
    }
    if unknown:
        raise bad_fields(unknown)
    # Two references may name the same record.
    return list(dict.fromkeys(found[reference] for reference in references))
