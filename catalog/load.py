"""`proximity catalog load FILE`: loads one JSON document into the catalog, all of it or nothing.

The document is `{"companies": [...]}` with the interface's field names, in every spelling that
requests may use. Existing records are found by natural keys (`_KINDS`). Records and fields that the
document does not name are not changed. Loading the same document twice changes nothing the second
time.

The document needs fewer fields than the interface: a new campaign's weekdays default to true and
its hours to 00:00 and 24:00. A list (`tags`, `beacons`, `geofencings`, `nfcs`, `qrcodes`) replaces
the whole stored list. `password` is used only for a new account. `permission` defaults to all
levels; if it is given, areas that it omits are 0 on a new account and unchanged on an existing one.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from itertools import chain
from typing import Annotated, Any, NamedTuple

import orjson
from pydantic import AfterValidator, Field
from sqlalchemy import select, true, tuple_
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import selectinload

from catalog import inputs
from catalog.bounds import chunked
from catalog.database import SessionFactory
from catalog.errors import LimitError
from catalog.fields import (
    ABSENT,
    Conflicts,
    Faults,
    Fields,
    joined,
    note_unknown,
    read_fields,
    spellings,
)
from catalog.limits import (
    CONTENT_FIELDS,
    CatalogLimits,
    check_content,
    check_geofences,
    check_open_campaigns,
    check_quiet_hours,
    check_venue_size,
)
from catalog.models import (
    EVERY_DAY,
    Account,
    Application,
    Beacon,
    Campaign,
    Company,
    Connector,
    Device,
    Geofence,
    ScanTag,
    Tag,
    Venue,
)
from catalog.passwords import hash_password
from catalog.secrets import MISSING_SECRET_KEY, Cipher, encrypted
from connectors.errors import HostUnresolvedError, UrlForbiddenError

# Raises EgressError for a connector's url that may not be called.
CheckUrl = Callable[[str], Awaitable[None]]
_CHUNK = 500
# Fields of the interface's answers. A file that was made from an answer may hold them; ignored.
_READ_ONLY = ("id", "create_on", "update_on", "nb_beacon", "nb_campaign")


class Key(NamedTuple):
    """What names a record, in the document and in SQL: `values` of the attributes of its kind, and
    the place of its owner if only that knows the name."""

    kind: str
    owner: str
    values: tuple[Any, ...]


class LoadError(Exception):
    """A document was refused, and nothing was changed. `faults` has every fault in it."""

    def __init__(self, faults: Faults) -> None:
        self.faults = [": ".join(filter(None, fault)) for fault in faults.items()]
        super().__init__("\n".join(self.faults))


# How many records of each kind were created, updated or unchanged.
LoadSummary = defaultdict[str, Counter[str]]


async def load_document(
    session_factory: SessionFactory,
    raw: bytes,
    cipher: Cipher | None,
    *,
    limits: CatalogLimits,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    check_url: CheckUrl | None = None,
) -> LoadSummary:
    """Load a document in one transaction, and count what it changed.

    `session_factory` is the database's `write`. A document with a connector needs `cipher`;
    `check_url` checks its url. Raises LoadError, SQLAlchemyError, OSError or TimeoutError; then
    nothing has changed.
    """
    faults, summary = Faults(), LoadSummary(Counter)
    companies = read_document(raw, faults)
    if check_url is not None:
        await _check_urls(chain(*companies), check_url, faults)
    try:
        async with session_factory.begin() as session:
            for company in companies:
                loader = _CompanyLoader(session, cipher, limits, clock(), faults, summary)
                await loader.load(company)
            if faults:
                raise LoadError(faults)
    except IntegrityError:
        again = "load again; or tags exchange their values: load other ones before"
        raise LoadError({"": f"the catalog was changed meanwhile: {again}"}) from None
    return summary


# The document.


# Each name once, in order.
_Names = Annotated[
    list[Annotated[inputs.ByName | inputs.Name, Field(union_mode="left_to_right")]],
    Field(description='a list of objects {"name": string}, or of names'),
    AfterValidator(lambda names: list(dict.fromkeys(names))),
]


class _Links(Fields):
    """The names of what a place or a campaign refers to."""

    tags: _Names = ABSENT
    geofencings: _Names = ABSENT
    nfcs: _Names = ABSENT
    qrcodes: _Names = ABSENT


class _Kind(NamedTuple):
    """A kind of record: its fields, its table, and the attributes that name a record.

    A name is unique on the whole platform, or in the company or venue of the column `owner`.
    `links` are what it refers to by name, `inside` the lists of records in it.
    """

    fields: type[Fields]
    model: Any
    key: tuple[str, ...]
    owner: str | None = None
    conflicts: Conflicts = lambda _: {}
    links: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()


_TAGS = ("tags",)
_IN_COMPANY = ("accounts", "applications", "connector", "devices", "venues")
_IN_VENUE = ("beacons", "geofences", "nfcs", "qrcodes", "campaigns")
# In the order in which they are written: a campaign may target beacons of another venue.
_KINDS = {
    "companies": _Kind(inputs.CompanyFields, Company, ("name",), inside=_IN_COMPANY),
    "accounts": _Kind(inputs.AccountFields, Account, ("email",)),
    "applications": _Kind(inputs.ApplicationFields, Application, ("api_key",)),
    "connector": _Kind(
        inputs.ConnectorInput, Connector, (), "company_id", inputs.connector_conflicts
    ),
    "devices": _Kind(inputs.DeviceFields, Device, ("udid",), "company_id"),
    "venues": _Kind(inputs.VenueInput, Venue, ("name",), "company_id", inside=_IN_VENUE),
    "tags": _Kind(Fields, Tag, ("name",), "company_id"),
    "beacons": _Kind(inputs.BeaconFields, Beacon, ("uuid", "major", "minor"), links=_TAGS),
    "geofences": _Kind(inputs.GeofenceFields, Geofence, ("name",), "venue_id", links=_TAGS),
    "nfcs": _Kind(inputs.ScanTagFields, ScanTag, ("name",), "venue_id", links=_TAGS),
    "qrcodes": _Kind(inputs.ScanTagFields, ScanTag, ("name",), "venue_id", links=_TAGS),
    "campaigns": _Kind(
        inputs.CampaignFields,
        Campaign,
        ("name",),
        "venue_id",
        inputs.campaign_conflicts,
        tuple(_Links.model_fields),
    ),
}
_SCAN_TAGS = {"nfcs": "nfc", "qrcodes": "qrcode"}
_LOADED_WITH: dict[Any, tuple[Any, ...]] = {
    Beacon: (Beacon.venue, Beacon.tags),
    Geofence: (Geofence.tags,),
    ScanTag: (ScanTag.tags,),
    Campaign: (Campaign.beacons, Campaign.geofencings, Campaign.scan_tags, Campaign.tags),
}


@dataclass(eq=False)
class _Item:
    """A record of the document: its kind and place, the attributes that it gives, its owner.

    A campaign's `beacons` are (place, key) pairs. Values that were refused are missing.
    """

    kind: str
    place: str
    values: dict[str, Any]
    owner: "_Item | None" = None

    @cached_property
    def key(self) -> Key | None:
        """The record's key; None if what names it was refused."""
        names = _KINDS[self.kind].key
        if not all(name in self.values for name in names):
            return None
        owner = self.owner.place if self.owner and _KINDS[self.kind].owner else ""
        return Key(self.kind, owner, tuple(self.values[name] for name in names))

    @property
    def key_place(self) -> str:
        """The place of the field that names the record, or of the record if several do."""
        names = _KINDS[self.kind].key
        return f"{self.place}.{names[0]}" if len(names) == 1 else self.place

    def keys_of(self, name: str) -> list[Key]:
        """The keys of the records that one of REFERENCES names."""
        listed = self.values.get(name, ())
        if name == "beacons":
            return [key for _, key in listed]
        owner = self.owner and (self.owner.owner if name == "tags" else self.owner)
        kind, place = "geofences" if name == "geofencings" else name, owner.place if owner else ""
        return [Key(kind, place, (each,)) for each in listed]


def read_document(raw: bytes, faults: Faults) -> list[list[_Item]]:
    """The records of each company of a document, the company first.

    Every fault is noted; with faults the result is incomplete.
    """
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        faults[f"line {error.lineno} column {error.colno}"] = f"not JSON: {error.msg}"
        return []
    if not isinstance(document, dict) or not isinstance(document.get("companies"), list):
        faults[""] = 'accepted: an object {"companies": [...]}'
        return []
    note_unknown(["companies"], document, place="", faults=faults)
    companies = [
        [*_record("companies", given, place, None, faults)]
        for place, given in _objects(document, "companies", "", faults)
    ]
    first: dict[Key, str] = {}
    for item in chain(*companies):
        if item.key is not None and first.setdefault(item.key, item.key_place) != item.key_place:
            faults[item.key_place] = f"the same as {first[item.key]}"
    return companies


def _record(
    kind: str, given: dict[str, Any], place: str, owner: _Item | None, faults: Faults
) -> Iterator[_Item]:
    """A record and all records in it."""
    spec = _KINDS[kind]
    references = ["beacons"] if kind == "campaigns" else []
    known = [*chain(*spellings(spec.fields).values()), *spec.links, *spec.inside, *references]
    note_unknown(known, [n for n in given if n not in _READ_ONLY], place=place, faults=faults)
    values = read_fields(spec.fields, given, place=place, faults=faults)
    links = {name: given[name] for name in spec.links if name in given}
    values |= read_fields(_Links, links, place=place, faults=faults)
    if kind == "campaigns" and "beacons" in given:
        values["beacons"] = []
        for here, triple in _objects(given, "beacons", place, faults):
            target = read_fields(inputs.TripleFields, triple, place=here, faults=faults)
            if (key := _Item("beacons", here, target).key) is not None:
                values["beacons"].append((here, key))
    for name, message in spec.conflicts(values).items():
        faults.setdefault(joined(place, name), message)
    item = _Item(kind, place, values, owner)
    yield item
    for each in spec.inside:
        for here, inner in _objects(given, each, place, faults):
            yield from _record(each, inner, here, item, faults)


def _objects(
    given: dict[str, Any], name: str, place: str, faults: Faults
) -> Iterator[tuple[str, dict[str, Any]]]:
    here, listed = joined(place, name), given.get(name, [])
    items = enumerate(listed) if isinstance(listed, list) else ()
    found = [(f"{here}[{number}]", item) for number, item in items]
    if name == "connector":  # the only record that is not in a list
        found = [] if given.get(name) is None else [(here, listed)]
    elif not isinstance(listed, list):
        faults[here] = "accepted: a list of objects"
    for at, item in found:
        if isinstance(item, dict):
            yield at, item
        else:
            faults[at] = "accepted: an object"


async def _check_urls(items: Iterable[_Item], check_url: CheckUrl, faults: Faults) -> None:
    for item in (each for each in items if each.kind == "connector" and "url" in each.values):
        try:
            with suppress(HostUnresolvedError):  # it may be found later
                await check_url(item.values["url"])
        except UrlForbiddenError as error:
            faults[f"{item.place}.url"] = str(error)


# The database.


@dataclass
class _CompanyLoader:
    """Checks one company's records against the stored ones, and writes them.

    Nothing more is written once there is a fault, but everything is checked. `records` has the
    stored and the written ones. `added` has the venues with more beacons or campaigns than before,
    by the place of the list.
    """

    session: AsyncSession
    cipher: Cipher | None
    limits: CatalogLimits
    now: datetime
    faults: Faults
    summary: LoadSummary
    records: dict[Key | None, Any] = field(default_factory=dict)
    listed: set[Key | None] = field(default_factory=set)
    added: dict[str, tuple[type[Beacon | Campaign], Venue]] = field(default_factory=dict)
    company: Any = None

    async def load(self, items: Sequence[_Item]) -> None:
        """Load the company, which is the first item, and its records."""
        company = items[0]
        self.listed = {item.key for item in items}
        names = dict.fromkeys(tag for item in items for tag in item.values.get("tags", ()))
        tags = [_Item("tags", company.place, {"name": name}, company) for name in names]
        targets = [key for item in items for key in item.keys_of("beacons")]
        for kind in _KINDS:
            of_kind = [each for each in (*items, *tags) if each.kind == kind]
            await self._find(kind, {item.key: item for item in of_kind if item.key})
            if kind == "beacons":
                await self._find(kind, dict.fromkeys(targets))
            if kind in _SCAN_TAGS:
                await self._check_values(kind, of_kind)
            for item in of_kind:
                await self._load(item, self.records.get(item.key))
            await self.session.flush()
            if kind == "companies":
                self.company = self.records.get(company.key)
        if not self.faults:
            await self._check_limits(company.place)

    async def _find(self, kind: str, wanted: Mapping[Key, _Item | None]) -> None:
        """Read the stored records that have the keys. Notes ambiguous names."""
        spec, model = _KINDS[kind], _KINDS[kind].model
        query = select(model).options(*map(selectinload, _LOADED_WITH.get(model, ())))
        if kind in ("companies", "venues"):  # nobody else adds to them, or deletes them, meanwhile
            query = query.with_for_update(key_share=True)
        if kind in _SCAN_TAGS:
            query = query.where(ScanTag.kind == _SCAN_TAGS[kind])
        columns = [getattr(model, name) for name in spec.key]
        names: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
        for key in wanted:
            names[key.owner].append(key.values)
        owners = {key.owner: item and item.owner for key, item in wanted.items()}
        for place, owner in owners.items():
            of_owner = query
            if spec.owner is not None:
                stored = self.records.get(owner.key) if owner else None
                of_owner = query.where(getattr(model, spec.owner) == (stored and stored.id))
            for chunk in chunked(names[place], _CHUNK):
                condition = tuple_(*columns).in_(chunk) if columns else true()
                for record in await self.session.scalars(of_owner.where(condition)):
                    key = Key(kind, place, tuple(getattr(record, each) for each in spec.key))
                    if self.records.setdefault(key, record) is not record:
                        item = wanted[key]
                        message = f"several {kind} have this name: rename all but one"
                        self.faults[item.key_place if item else ""] = message

    async def _load(self, item: _Item, known: Any) -> None:
        """Check a record, and write it if there is no fault."""
        may_be_foreign = _KINDS[item.kind].owner is None and item.kind != "companies"
        if known is not None and may_be_foreign and not self._is_own(known):
            self.faults[item.key_place] = "belongs to another company"
        if item.kind == "connector" and self.cipher is None:
            self.faults[item.place] = MISSING_SECRET_KEY
        if item.kind == "campaigns":
            self._check_campaign(item, known)
        if not self.faults:
            self.records[item.key] = await self._write(item, known)

    def _is_own(self, record: Any) -> bool:
        owner = record.venue.company_id if isinstance(record, Beacon) else record.company_id
        return self.company is not None and bool(owner == self.company.id)

    async def _check_values(self, kind: str, items: Sequence[_Item]) -> None:
        """Note the values that another tag of the company and kind keeps, or is given before."""
        given = {self.records.get(each.key, each): each.values.get("value") for each in items}
        owners: dict[str, Any] = {}
        query = select(ScanTag).where(
            ScanTag.kind == _SCAN_TAGS[kind],
            ScanTag.company_id == (self.company and self.company.id),
        )
        for values in chunked(given.values(), _CHUNK):
            for tag in await self.session.scalars(query.where(ScanTag.value.in_(values))):
                if given.get(tag, tag.value) == tag.value:
                    owners[tag.value] = tag
        for item in items:
            own, value = self.records.get(item.key, item), item.values.get("value")
            if value is not None and owners.setdefault(value, own) is not own:
                self.faults[f"{item.place}.value"] = f"another of the company's {kind} has it"

    def _check_campaign(self, item: _Item, known: Campaign | None) -> None:
        for place, key in item.values.get("beacons", ()):
            beacon = self.records.get(key)
            if key not in self.listed and (beacon is None or not self._is_own(beacon)):
                triple = ":".join(map(str, key.values))
                self.faults[place] = f"{triple} is not a beacon of this company"
        for name in ("geofencings", *_SCAN_TAGS):
            for key in item.keys_of(name):
                if key not in self.records and key not in self.listed:
                    message = f"{key.values[0]!r} is not in the venue's list of {key.kind}"
                    self.faults[f"{item.place}.{name}"] = message
        kept = {name: getattr(known, name) for name in CONTENT_FIELDS} if known else {}
        try:
            check_content(self.limits, kept | item.values)
        except LimitError as error:
            self.faults[f"{item.place}.{error.field}"] = str(error)

    async def _write(self, item: _Item, known: Any) -> Any:
        """Set the attributes that differ from the stored record, or add a new one."""
        model = _KINDS[item.kind].model
        values, on_create = await self._columns(item, known)
        owner: Any = self.records[item.owner.key] if item.owner else None
        if isinstance(owner, Venue):
            on_create["venue"] = owner
        if item.kind == "beacons":
            values["venue"] = owner  # it may come from another venue
        if model is ScanTag:
            on_create |= {"company": self.company, "kind": _SCAN_TAGS[item.kind]}
        if isinstance(owner, Company):
            on_create["company"] = owner
        if known is None:
            dates = [name for name in ("create_on", "update_on") if hasattr(model, name)]
            record = model(**{**on_create, **dict.fromkeys(dates, self.now), **values})
            self.session.add(record)
            outcome, different = "created", values
        else:
            record = known
            different = {key: each for key, each in values.items() if getattr(known, key) != each}
            outcome = "updated" if different else "unchanged"
            if different and hasattr(model, "update_on"):
                different["update_on"] = self.now
            for key, value in different.items():
                setattr(record, key, value)
        self.summary["connectors" if item.kind == "connector" else item.kind][outcome] += 1
        if model in (Beacon, Campaign) and (known is None or "venue" in different):
            self.added[item.place.rpartition("[")[0]] = (model, owner)
        return record

    async def _columns(self, item: _Item, known: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The columns and links to set, and those of a new record only."""
        values = dict(item.values)
        if item.kind == "connector" and self.cipher is not None:
            return encrypted(self.cipher, known, values), {}
        if item.kind == "campaigns":
            days = known.weekdays if known else EVERY_DAY
            return inputs.campaign_columns(values, weekdays=days) | self._links(item, known), {}
        if item.kind != "accounts":
            return values | self._links(item, known), {}
        password, given = values.pop("password"), values.pop("permission", None)
        if known is not None:
            # The account holder may have changed the password: a file does not undo that.
            return values | {"permission": known.permission | (given or {})}, {}
        level = inputs.WRITE if given is None else inputs.NOTHING
        levels = dict.fromkeys(inputs.AREAS, level) | (given or {})
        hashed = await asyncio.to_thread(hash_password, password)
        return values, {"permission": levels, "password_hash": hashed}

    def _links(self, item: _Item, known: Any) -> dict[str, Any]:
        """The records that REFERENCES name, in the order of a relationship."""
        links = {
            name: [self.records[key] for key in item.keys_of(name)]
            for name in inputs.REFERENCES
            if name in item.values
        }
        if item.kind == "campaigns":
            scanned = [links.pop(name, getattr(known, name, [])) for name in _SCAN_TAGS]
            links["scan_tags"] = [*chain(*scanned)]
        return {name: sorted({*found}, key=lambda each: each.id) for name, found in links.items()}

    async def _check_limits(self, place: str) -> None:
        """Note the limits that are exceeded; `place` is the company's."""
        company = self.company.id
        for each, (model, venue) in self.added.items():
            await self._note(each, check_venue_size(self.session, self.limits, model, venue.id))
        await self._note(place, check_geofences(self.session, self.limits, company))
        await self._note(place, check_quiet_hours(self.session, company, "quiet_hours"))
        await self._note(
            place, check_open_campaigns(self.session, self.limits, company, self.now, field="")
        )

    async def _note(self, place: str, check: Awaitable[None]) -> None:
        """Note the limit that a check finds exceeded."""
        try:
            await check
        except LimitError as error:
            self.faults.setdefault(joined(place, error.field), str(error))
