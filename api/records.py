"""The operations that all kinds of records share: list, create, get, edit, delete, restore.

A new kind of record is a `Records`, and a call of `add_operations`. Its fields may refer to other
records: a tag by its name (created if it is new) or id, a beacon by its id or triple, another place
by its id. All must belong to the company, and other places than beacons to the campaign's venue.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any, Generic

from fastapi import APIRouter, Depends
from pydantic import AfterValidator, Field, create_model
from sqlalchemy import or_, select, tuple_
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import Response

from api.answers import Answer, ApiError, DoneAnswer, Record
from api.bodies import (
    LISTING,
    MOST_LISTED,
    OWN,
    RECORD,
    VENUE,
    DryRun,
    FromOne,
    Listing,
    accepted,
    accepted_list,
    accepts,
    refuse,
)
from api.permissions import Caller, may_read, may_write
from api.tenancy import PAGE, M, Query, assign, find, listed, of_company, writing
from catalog.fields import Fields, joined
from catalog.inputs import ByName, Name, Triple, TripleFields
from catalog.limits import lock_company
from catalog.models import Beacon, Geofence, ScanTag, SoftDeletable, Tag, Venue
from catalog.session import RESTORABLE, undelete, with_deleted

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Scope:
    """The caller, and what the path names: a venue or the company, and perhaps one record of it.

    `found` has the records that references of the request name, by field and reference.
    """

    caller: Caller
    venue_id: int | None = None
    number: int = 0
    found: dict[str, dict["Reference", Any]] = field(default_factory=lambda: defaultdict(dict))

    async def lock(self, session: AsyncSession) -> None:
        """Lock the company and the venue, if there is one. Raises ApiError 404."""
        company = self.caller.company_id
        await lock_company(session, company)
        if self.venue_id is not None:
            await find(session, of_company(Venue, company), self.venue_id, lock=True)


@dataclass(frozen=True, kw_only=True)
class Records(Generic[M]):
    """A kind of record: its paths, its fields, and what is special about writing it.

    Records whose path has a venue's id belong to the venue, others to the company.

    - `edited` are the fields of a PUT, if they differ from those of a POST, `created`. `about` adds
      to the description of the POST, which `other_path` has too.
    - `constants` are attributes of all these records, in a table that holds several kinds.
    - `options` load what the answer shows; a list is read `page` records at a time.
    - `columns` are the attributes to set for values, given the record if it is not a new one.
    - `check` raises LimitError, given the records that were written and whether they were added.
    - With `listed` a POST may have a list of records. `unique` are the attributes that no two
      records may share; the last one is at fault.
    """

    kind: str
    path: str
    other_path: str = ""
    model: type[M]
    answer: type[Answer]
    created: type[Fields]
    edited: type[Fields] | None = None
    example: Record
    about: str = ""
    constants: Mapping[str, Any] = field(default_factory=dict)
    options: Sequence[Any] = ()
    page: int = PAGE
    columns: Callable[[AsyncSession, Scope, Values, Any], Awaitable[Values]] = (
        lambda session, scope, values, _: with_references(session, scope, values)
    )
    check: Callable[[AsyncSession, Scope, Sequence[M], bool], Awaitable[None]] | None = None
    listed: bool = False
    unique: Sequence[str] = ()

    @cached_property
    def by_id(self) -> type[Fields]:
        """The fields of a record in a list of records to edit."""
        fields = self.edited or self.created
        return create_model(f"{fields.__name__}ById", __base__=(RecordById, fields))

    def query(self, scope: Scope) -> Query[M]:
        """The records that the scope has, with what their answers show."""
        query = of_company(self.model, scope.caller.company_id, scope.venue_id)
        return query.filter_by(**self.constants).options(*self.options)

    async def list_all(self, scope: Scope, listing: Listing = LISTING) -> Response:
        """The records of a venue or the company."""
        query, venue = self.query(scope), scope.venue_id
        return await listed(
            scope.caller, query, self.answer, listing, venue_id=venue, page=self.page
        )

    async def get(self, scope: Scope) -> Answer:
        """One record. Raises ApiError 404, as all that follow do."""
        async with scope.caller.services.database.read() as session:
            found = await find(session, self.query(scope), scope.number)
            return self.answer.model_validate(found)

    async def create(self, scope: Scope, dry: DryRun = False) -> Answer | list[Answer]:
        """Add the record in the body, or all records of the list in it; a dry run adds none."""
        body = await scope.caller.body()
        if self.listed and isinstance(body, list):
            given = accepted_list(self.created, body)
            return await self._save(scope, given, dry=dry, in_list=True)
        (answer,) = await self._save(scope, [accepted(self.created, body)], dry=dry)
        return answer

    async def edit(self, scope: Scope, dry: DryRun = False) -> Answer:
        """Set the fields in the body; others stay as they are. A dry run sets none."""
        values = await scope.caller.values(self.edited or self.created)
        (answer,) = await self._save(scope, [values], [scope.number], dry=dry)
        return answer

    async def edit_all(self, scope: Scope, dry: DryRun = False) -> list[Answer]:
        """Set the fields of every record in the body, a list, or of none; a dry run sets none."""
        body = await scope.caller.body()
        given = accepted_list(self.by_id, body)
        numbers = [each.pop("id") for each in given]
        return await self._save(scope, given, numbers, dry=dry, in_list=True)

    async def _save(
        self,
        scope: Scope,
        given: Sequence[Values],
        numbers: Sequence[int] = (),
        *,
        dry: bool,
        in_list: bool = False,
    ) -> list[Answer]:
        """Store the values as new records, or in the records with these ids.

        Faults in a list begin with an index: [3].
        """
        owner: Record = {"company_id": scope.caller.company_id, "venue_id": scope.venue_id}
        owner = {name: owner[name] for name in owner if hasattr(self.model, name)}
        async with writing(scope.caller.services, dry=dry) as session:
            await scope.lock(session)
            records: list[Any] = [None] * len(given)
            if in_list and numbers:
                records = await self._of_list(session, scope, numbers)
            elif numbers:
                records = [await find(session, self.query(scope), scope.number, lock=True)]
            if in_list and self.unique:
                await self._refuse_taken(session, scope, given, numbers)
            for at, values in enumerate(given):
                try:
                    columns = await self.columns(session, scope, values, records[at])
                except ApiError as error:
                    place = f"[{at}]" if in_list else ""
                    error.fields = {joined(place, n): text for n, text in error.fields.items()}
                    raise
                if records[at] is None:
                    records[at] = self.model(**owner, **self.constants)
                    session.add(records[at])
                assign(records[at], columns)
            return await self._written(session, scope, records, added=not numbers)

    async def _of_list(
        self, session: AsyncSession, scope: Scope, numbers: Sequence[int]
    ) -> list[Any]:
        model: Any = self.model
        stored: Any = await session.scalars(self.query(scope).where(model.id.in_(numbers)))
        found = {record.id: record for record in stored}
        unknown = [f"[{at}].id" for at, number in enumerate(numbers) if number not in found]
        refuse(dict.fromkeys(unknown, f"not a {self.kind} of this venue"))
        return [found[number] for number in numbers]

    async def _refuse_taken(
        self, session: AsyncSession, scope: Scope, given: Sequence[Values], numbers: Sequence[int]
    ) -> None:
        """Raise ApiError 409 for the first record of a list that shares what must be unique."""
        model: Any = self.model
        columns = tuple_(*(getattr(model, name) for name in self.unique))
        keys = [tuple(values[name] for name in self.unique) for values in given]
        query = select(*columns.clauses).where(columns.in_(keys), model.id.not_in(numbers))
        if self.constants:
            query = query.filter_by(**self.constants, company_id=scope.caller.company_id)
        seen = {tuple(row) for row in await session.execute(query)}
        for at, key in enumerate(keys):
            if key in seen:
                raise self._taken({f"[{at}].{self.unique[-1]}": "taken"})
            seen.add(key)

    def _taken(self, fields: Mapping[str, str] | None = None) -> ApiError:
        what = "triple " * (len(self.unique) > 1) + ", ".join(self.unique)
        what = what or "triple or value of a record in it"
        return ApiError(409, f"the {what} is taken", fields=fields or {})

    async def delete(self, scope: Scope) -> DoneAnswer:
        """Delete a record."""
        async with writing(scope.caller.services) as session:
            await scope.lock(session)  # as an edit does, which would deadlock with another order
            await session.delete(await find(session, self.query(scope), scope.number, lock=True))
        return DoneAnswer()

    async def restore(self, scope: Scope) -> Answer:
        """Bring back a record that was deleted in the last 30 days; a venue with its records.

        Raises ApiError: 404 if there is none, 409 if its name or what makes it unique is taken.
        """
        query, model = self.query(scope), self.model.__mapper__.class_
        since = scope.caller.services.clock() - RESTORABLE
        async with writing(scope.caller.services) as session:
            await scope.lock(session)
            deleted = with_deleted(query.where(model.deleted_at >= since))
            record: Any = await find(session, deleted, scope.number, lock=True)
            if await session.scalar(query.where(model.name == record.name).limit(1)):
                raise ApiError(409, "the name is taken")
            await undelete(session, record)
            (answer,) = await self._written(session, scope, [record], added=True)
            return answer

    async def _written(
        self, session: AsyncSession, scope: Scope, records: Sequence[Any], *, added: bool
    ) -> list[Answer]:
        """The records as the transaction has written them, with all that answers show, checked."""
        try:
            await session.flush()
        except IntegrityError:
            if not (self.unique or self.model is Venue):  # a venue is restored with its records
                raise
            raise self._taken() from None
        model: Any = self.model
        query = self.query(scope).where(model.id.in_([record.id for record in records]))
        await session.scalars(query.execution_options(populate_existing=True))
        if self.check is not None:
            await self.check(session, scope, records, added)
        return [self.answer.model_validate(record) for record in records]


def add_operations(router: APIRouter, records: Records[Any]) -> None:
    """Add the operations of a kind of record to a router.

    Records that are deleted for good have no operations for reading and for restoring one.
    """
    kind, path, answer = records.kind, records.path, records.answer
    in_venue = "{id}" in path
    one = f"{path}/{{uid}}" if in_venue else f"{path}/{{id}}"

    def add(verb: str, method: str, at: str, text: str, work: Any, shown: Any, **more: Any) -> None:
        caller = may_read(kind) if method == "GET" else may_write(kind)
        name = f"{verb}_{kind}s" if verb == "list" else f"{verb}_{kind}"
        router.add_api_route(
            at,
            partial(work, scope=_scope(caller, in_venue=in_venue, of_one=at.startswith(one))),
            methods=[method],
            response_model=shown,
            description=text,
            tags=[kind],
            **{"name": name, "summary": name.replace("_", " ").title(), **more},
        )

    all_of: Any = list[answer]  # type: ignore[valid-type]
    add("list", "GET", path, f"The {kind}s.", records.list_all, all_of)
    text = f"Create a new {kind}. {records.about}".strip()
    created = answer | all_of if records.listed else answer
    body = accepts(records.created, records.example, or_list=records.listed)
    add("create", "POST", path, text, records.create, created, status_code=201, openapi_extra=body)
    if other := records.other_path:
        more = {"name": f"create_{kind}_by_its_other_path", "openapi_extra": body}
        add("create", "POST", other, text, records.create, answer, status_code=201, **more)
    edited = records.edited or records.created
    text = f"Change the {kind}. Optional fields that are not given stay as they are."
    body = accepts(edited, records.example)
    add("edit", "PUT", one, text, records.edit, answer, openapi_extra=body)
    if records.listed:
        body = accepts(records.by_id, [{"id": 1, **records.example}])
        text = f"Change several {kind}s, each named by its id: all of them or none."
        more = {"name": f"edit_{kind}s", "openapi_extra": body}
        add("edit", "PUT", path, text, records.edit_all, all_of, **more)
    add("delete", "DELETE", one, f"Delete the {kind}.", records.delete, DoneAnswer)
    if issubclass(records.model, SoftDeletable):
        add("get", "GET", one, f"One {kind}.", records.get, answer)
        text = f"Bring back a {kind} that was deleted in the last {RESTORABLE.days} days."
        add("restore", "POST", f"{one}/restore", text, records.restore, answer)


def _scope(permitted: Any, *, in_venue: bool, of_one: bool) -> Any:
    venue, record = (VENUE, RECORD) if in_venue else (Depends(lambda: None), OWN)
    if not of_one:
        record = Depends(lambda: 0)

    def scope(caller: Caller = permitted, venue: int = venue, record: int = record) -> Scope:
        return Scope(caller, venue, record)

    return Depends(scope)


Reference = int | str | Triple


class RecordById(Fields):
    """A record of the company by its id."""

    id: FromOne


def _several(accepts: str) -> Any:
    return Field(max_length=MOST_LISTED, description=f"a list of at most {MOST_LISTED} {accepts}")


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
    _several('objects {"name": string} or {"id": integer}, or names'),
]
Beacons = Annotated[
    list[Annotated[ById | ByTriple | FromOne, IN_ORDER]],
    _several("beacons by id, or by uuid, major and minor"),
]
Places = Annotated[list[Annotated[ById | FromOne, IN_ORDER]], _several("places of the venue by id")]


async def with_references(session: AsyncSession, scope: Scope, values: Values) -> dict[str, Any]:
    """The values, with the records that references among them name. Raises ApiError 400.

    In a venue, places other than beacons must be that venue's.
    """
    found = {
        field: await find_referenced(session, scope, field, values[field])
        for field in _KINDS.keys() & values.keys()
    }
    return {**values, **found}


async def find_referenced(
    session: AsyncSession, scope: Scope, field: str, references: Sequence[Reference]
) -> list[Any]:
    """The records that the references in `field` name; new tags are added.

    Raises ApiError 400 for what is not the company's.
    """
    model, what = _KINDS[field]
    owner = "venue" if scope.venue_id is not None and field in _OF_VENUE else "company"
    found, company = scope.found[field], scope.caller.company_id
    if missing := [each for each in references if each not in found]:
        names = [each for each in missing if isinstance(each, str)]
        conditions = [model.id.in_([each for each in missing if isinstance(each, int)])]
        if names:
            conditions.append(Tag.name.in_(names))
        if triples := [each for each in missing if isinstance(each, Triple)]:
            conditions.append(tuple_(Beacon.uuid, Beacon.major, Beacon.minor).in_(triples))
        query = of_company(model, company, scope.venue_id if owner == "venue" else None)
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
                found[name] = Tag(company_id=company, name=name)
    unknown = {
        f"{field}[{place}]": f"{reference}: not a {what} of this {owner}"
        for place, reference in enumerate(references)
        if reference not in found
    }
    refuse(unknown)
    # Two references may name the same record.
    return list(dict.fromkeys(found[reference] for reference in references))
