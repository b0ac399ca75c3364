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
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Annotated, Any, NamedTuple

import orjson
from pydantic import AfterValidator, Field
from sqlalchemy import select, true, tuple_
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import selectinload

from catalog.accounts import hash_password
from catalog.database import SessionFactory, chunked
from catalog.errors import LimitError, VenueDeletedError
from catalog.fields import (
    ABSENT,
    Conflicts,
    Faults,
    FieldFault,
    Fields,
    Name,
    joined,
    note_unknown,
    read_fields,
    spellings,
)
from catalog.inputs import (
    ALL_PERMISSIONS,
    AREAS,
    NOTHING,
    AccountFields,
    ApplicationFields,
    BeaconFields,
    ByName,
    CampaignFields,
    CompanyFields,
    ConnectorInput,
    DeviceFields,
    GeofenceFields,
    ScanTagFields,
    Triple,
    TripleFields,
    VenueInput,
    campaign_columns,
    campaign_conflicts,
    connector_conflicts,
)
from catalog.limits import (
    CONTENT_FIELDS,
    DEFAULT_LIMITS,
    CatalogLimits,
    check_content,
    check_geofences,
    check_quiet_hours,
    check_venue_size,
    crowded_beacons,
    open_period,
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
from catalog.secrets import MISSING_SECRET_KEY, Cipher, encrypted

# The fault of a connector's url (it is not public, say), or None.
UrlFault = Callable[[str], Awaitable[str | None]]
Key = tuple[Any, ...]
_CHUNK = 500
# Fields of the interface's answers. A file that was made from an answer may hold them; ignored.
_READ_ONLY = ("id", "create_on", "update_on", "nb_beacon", "nb_campaign")
_HOURS = {"start_minute": 0, "end_minute": 24 * 60}


class LoadError(Exception):
    """A document was refused, and nothing was changed. `faults` has every fault in it."""

    def __init__(self, faults: Sequence[FieldFault]) -> None:
        super().__init__("\n".join(map(str, faults)))
        self.faults = tuple(faults)


class LoadSummary(defaultdict[str, Counter[str]]):
    """How many records were created, updated or left unchanged, by kind: companies, accounts,
    applications, connectors, devices, venues, tags, beacons, geofences, nfcs, qrcodes, campaigns.
    """

    def __init__(self) -> None:
        super().__init__(Counter)

    @property
    def changed(self) -> bool:
        """Whether anything was created or updated."""
        return any(count["created"] or count["updated"] for count in self.values())

    def lines(self) -> list[str]:
        """A line per kind, for people."""
        outcomes = ("created", "updated", "unchanged")
        return [
            f"{kind}: {', '.join(f'{count[each]} {each}' for each in outcomes)}"
            for kind, count in self.items()
        ]


async def load_document(
    session_factory: SessionFactory,
    raw: bytes,
    cipher: Cipher | None,
    *,
    limits: CatalogLimits = DEFAULT_LIMITS,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    url_fault: UrlFault | None = None,
) -> LoadSummary:
    """Load a document in one transaction, and count what it changed.

    `session_factory` is the database's `write`. A document with a connector needs `cipher`, and
    `url_fault` checks its url. Raises LoadError, SQLAlchemyError, OSError or TimeoutError; then
    nothing has changed.
    """
    faults, summary = Faults(), LoadSummary()
    companies = read_document(raw, faults)
    if url_fault is not None:
        await _check_urls(companies, url_fault, faults)
    try:
        async with session_factory.begin() as session:
            for company in companies:
                loader = _CompanyLoader(session, cipher, limits, clock(), faults, summary)
                await loader.load(company)
            if faults:
                raise LoadError(faults)
    except (IntegrityError, VenueDeletedError) as error:
        if "scan_tag" in str(error):
            message = "a value belongs to another NFC tag or QR code of the company"
            raise LoadError([FieldFault("", message)]) from None
        raise LoadError([FieldFault("", "the catalog was changed meanwhile: load again")]) from None
    return summary


# The document.


# Each name once, in order.
_Names = Annotated[
    list[Annotated[ByName | Name, Field(union_mode="left_to_right")]],
    Field(description='a list of objects {"name": string}, or of names'),
    AfterValidator(lambda names: list(dict.fromkeys(names))),
]


class _Tagged(Fields):
    tags: _Names = ABSENT


class _LoadedBeacon(BeaconFields, _Tagged):
    """A beacon with the names of its tags."""


class _LoadedGeofence(GeofenceFields, _Tagged):
    """A geofence with the names of its tags."""


class _LoadedScanTag(ScanTagFields, _Tagged):
    """An NFC tag or QR code with the names of its tags."""


class _LoadedCampaign(CampaignFields, _Tagged):
    """A campaign with the names of its targets; its beacons are read separately."""

    geofencings: _Names = ABSENT
    nfcs: _Names = ABSENT
    qrcodes: _Names = ABSENT


class _Kind(NamedTuple):
    """A kind of record: its fields, its table, and the attributes that name a record.

    The key is unique among the records of `within`: a venue, a company, or the whole platform.
    `inside` are the lists of records in it.
    """

    fields: type[Fields]
    model: Any
    key: tuple[str, ...]
    within: str = "company"
    conflicts: Conflicts = lambda _: ()
    inside: tuple[str, ...] = ()


_TRIPLE = ("uuid", "major", "minor")
_IN_COMPANY = ("accounts", "applications", "connector", "devices", "venues")
_IN_VENUE = ("beacons", "geofences", "geofencings", "nfcs", "qrcodes", "campaigns")
_KINDS = {
    "companies": _Kind(CompanyFields, Company, ("name",), "platform", inside=_IN_COMPANY),
    "accounts": _Kind(AccountFields, Account, ("email",), "platform"),
    "applications": _Kind(ApplicationFields, Application, ("api_key",), "platform"),
    "connector": _Kind(ConnectorInput, Connector, (), conflicts=connector_conflicts),
    "devices": _Kind(DeviceFields, Device, ("udid",)),
    "venues": _Kind(VenueInput, Venue, ("name",), inside=_IN_VENUE),
    "beacons": _Kind(_LoadedBeacon, Beacon, _TRIPLE, "platform"),
    "geofences": _Kind(_LoadedGeofence, Geofence, ("name",), "venue"),
    "nfcs": _Kind(_LoadedScanTag, ScanTag, ("name",), "venue"),
    "qrcodes": _Kind(_LoadedScanTag, ScanTag, ("name",), "venue"),
    "campaigns": _Kind(_LoadedCampaign, Campaign, ("name",), "venue", campaign_conflicts),
    "tags": _Kind(Fields, Tag, ("name",)),
}
_OTHER_NAMES = {"geofencings": "geofences"}
# What a record refers to by name: its attribute, and the kind of the records.
_BY_NAME = {"geofencings": "geofences", "nfcs": "nfcs", "qrcodes": "qrcodes"}
_REFERENCES = {"beacons": "beacons", **_BY_NAME, "tags": "tags"}
_SCAN_TAGS = {"nfcs": "nfc", "qrcodes": "qrcode"}
_LOADED_WITH: dict[Any, tuple[Any, ...]] = {
    Beacon: (Beacon.venue, Beacon.tags),
    Geofence: (Geofence.tags,),
    ScanTag: (ScanTag.tags,),
    Campaign: (Campaign.beacons, Campaign.geofencings, Campaign.scan_tags, Campaign.tags),
}


@dataclass
class _Item:
    """A record of the document: its kind and place, the attributes that it gives, what is in it.

    A campaign's `beacons` are (place, triple) pairs. Values that were refused are missing.
    """

    kind: str
    place: str
    values: dict[str, Any]
    venue: str | None
    inside: defaultdict[str, list["_Item"]] = field(default_factory=lambda: defaultdict(list))

    @property
    def key(self) -> Key | None:
        """The natural key within the company, with the venue's name if that belongs to it."""
        names = _KINDS[self.kind].key
        if not all(name in self.values for name in names):
            return None
        return self.key_of(self.kind, tuple(self.values[name] for name in names))

    def key_of(self, kind: str, name: Key) -> Key:
        """The key of a record of the same venue that is named so."""
        return (self.venue, *name) if _KINDS[kind].within == "venue" else name


def read_document(raw: bytes, faults: Faults) -> list[_Item]:
    """The companies of a document. Every fault is noted; with faults the result is incomplete."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        faults.note(f"line {error.lineno} column {error.colno}", f"not JSON: {error.msg}")
        return []
    if not isinstance(document, dict) or not isinstance(document.get("companies"), list):
        faults.note("", 'accepted: an object {"companies": [...]}')
        return []
    note_unknown(["companies"], document, place="", faults=faults)
    companies = [*_items("companies", document, "", None, faults)]
    _note_repeats(companies, faults)
    return companies


def _items(
    name: str, given: dict[str, Any], place: str, venue: str | None, faults: Faults
) -> Iterator[_Item]:
    kind = _OTHER_NAMES.get(name, name)
    spec = _KINDS[kind]
    references = ["beacons"] if kind == "campaigns" else []
    known = [*chain(*spellings(spec.fields).values()), *spec.inside, *references]
    for here, listed in _objects(given, name, place, faults):
        note_unknown(known, [n for n in listed if n not in _READ_ONLY], place=here, faults=faults)
        values = read_fields(spec.fields, listed, place=here, faults=faults)
        item = _Item(kind, here, values, venue)
        if kind == "campaigns" and "beacons" in listed:
            values["beacons"] = [*_triples(listed, here, faults)]
        faults.note_conflicts(here, spec.conflicts(values))
        of = values.get("name") if kind == "venues" else None
        for each in spec.inside:
            item.inside[_OTHER_NAMES.get(each, each)] += _items(each, listed, here, of, faults)
        yield item


def _triples(given: dict[str, Any], place: str, faults: Faults) -> Iterator[tuple[str, Triple]]:
    for here, listed in _objects(given, "beacons", place, faults):
        values = read_fields(TripleFields, listed, place=here, faults=faults)
        if len(values) == len(_TRIPLE):
            yield here, Triple(**values)


def _objects(
    given: dict[str, Any], name: str, place: str, faults: Faults
) -> Iterator[tuple[str, dict[str, Any]]]:
    here = joined(place, name)
    listed = given.get(name, [])
    if name == "connector":  # the only record that is not in a list
        if isinstance(listed, dict):
            yield here, listed
        elif listed:
            faults.note(here, "accepted: an object")
    elif not isinstance(listed, list):
        faults.note(here, "accepted: a list of objects")
    else:
        for number, item in enumerate(listed):
            if isinstance(item, dict):
                yield f"{here}[{number}]", item
            else:
                faults.note(f"{here}[{number}]", "accepted: an object")


def _note_repeats(companies: Iterable[_Item], faults: Faults) -> None:
    """Note each record whose natural key occurs twice, with the other place."""
    first: dict[Key, str] = {}
    for company in companies:
        for item in _all_in(company):
            if item.key is not None:
                names = _KINDS[item.kind].key
                owner = () if _KINDS[item.kind].within == "platform" else (company.place,)
                place = f"{item.place}.{names[0]}" if len(names) == 1 else item.place
                seen = first.setdefault((item.kind, *owner, *item.key), place)
                if seen != place:
                    faults.note(place, f"the same as {seen}")


def _all_in(item: _Item) -> Iterator[_Item]:
    yield item
    for each in chain(*item.inside.values()):
        yield from _all_in(each)


async def _check_urls(companies: Sequence[_Item], url_fault: UrlFault, faults: Faults) -> None:
    connectors = [each for item in companies for each in item.inside["connector"]]
    connectors = [each for each in connectors if "url" in each.values]
    # All urls at once, because each look-up has its own deadline.
    answers = await asyncio.gather(*(url_fault(each.values["url"]) for each in connectors))
    for connector, answer in zip(connectors, answers, strict=True):
        if answer is not None:
            faults.note(f"{connector.place}.url", answer)


# The database.


@dataclass
class _CompanyLoader:
    """Checks one company's records against the stored ones, and writes them.

    Nothing more is written once there is a fault, but everything is checked. `records` has the
    stored and the written ones by (kind, key). `grown` has the beacons and campaigns that may
    exceed a limit now, and `added` the venues that have more records, with their places.
    """

    session: AsyncSession
    cipher: Cipher | None
    limits: CatalogLimits
    now: datetime
    faults: Faults
    summary: LoadSummary
    company: Company | None = None
    records: dict[tuple[str, Key], Any] = field(default_factory=dict)
    listed: set[tuple[str, Key | None]] = field(default_factory=set)
    grown: list[tuple[str, Beacon | Campaign]] = field(default_factory=list)
    added: dict[str, tuple[type[Beacon | Campaign], Venue]] = field(default_factory=dict)

    async def load(self, item: _Item) -> None:
        """Load the company. Beacons come first, since a campaign may target another venue's."""
        # Locked, so that two loads of one company do not each create the same venue.
        query = select(Company).where(Company.name == item.values.get("name"))
        self.company = await self.session.scalar(query.with_for_update(key_share=True))
        self.listed = {(each.kind, each.key) for each in _all_in(item)}
        if not self.faults:
            self.company = self._save("companies", self.company, Company, item.values)
            await self.session.flush()
        for kind in _IN_COMPANY:
            await self._load_all(item.inside[kind])
        venues = item.inside["venues"]
        targets = [
            _Item("beacons", place, triple._asdict(), None)
            for venue in venues
            for campaign in venue.inside["campaigns"]
            for place, triple in campaign.values.get("beacons", ())
        ]
        await self._find(targets)
        await self._load_tags(venues)
        for kind in ("beacons", "geofences", "nfcs", "qrcodes", "campaigns"):
            await self._load_all([each for venue in venues for each in venue.inside[kind]])
        if not self.faults:
            await self.session.flush()
            await self._check_limits(item.place)

    async def _load_all(self, items: Sequence[_Item]) -> None:
        """Load records of one kind."""
        await self._find(items)
        for item in items:
            known = None if item.key is None else self.records.get((item.kind, item.key))
            await self._check(item, known)
            if not self.faults:
                await self._write(item, known)
        await self.session.flush()

    async def _find(self, items: Sequence[_Item]) -> None:
        """Read the stored records that have the items' keys. Notes ambiguous names."""
        if not items:
            return
        kind = items[0].kind
        spec, model = _KINDS[kind], _KINDS[kind].model
        query = select(model).options(*map(selectinload, _LOADED_WITH.get(model, ())))
        owners: dict[int, str | None] = {}
        if spec.within == "venue":
            venues = (self.records.get(("venues", (item.venue,))) for item in items)
            owners = {venue.id: venue.name for venue in venues if venue is not None}
            query = query.where(model.venue_id.in_(owners))
            if kind in _SCAN_TAGS:
                query = query.where(ScanTag.kind == _SCAN_TAGS[kind])
        elif spec.within == "company":
            query = query.where(model.company_id == (self.company and self.company.id))
        wanted = dict.fromkeys(item.key for item in items if item.key is not None)
        columns = [getattr(model, name) for name in spec.key]
        names = {key[-len(columns) :] if columns else () for key in wanted}
        for chunk in chunked(names, _CHUNK):
            condition = tuple_(*columns).in_(chunk) if columns else true()
            for record in await self.session.scalars(query.where(condition)):
                name = tuple(getattr(record, each) for each in spec.key)
                key = (owners[record.venue_id], *name) if spec.within == "venue" else name
                if self.records.setdefault((kind, key), record) is not record and key in wanted:
                    place = next(item.place for item in items if item.key == key)
                    message = f"several {kind} have this name: rename all but one"
                    self.faults.note(f"{place}.name", message)

    async def _check(self, item: _Item, known: Any) -> None:
        spec = _KINDS[item.kind]
        if known is not None and spec.within == "platform" and not self._is_own(known):
            place = item.place if item.kind == "beacons" else f"{item.place}.{spec.key[0]}"
            self.faults.note(place, "belongs to another company")
        if item.kind == "connector" and self.cipher is None:
            self.faults.note(item.place, MISSING_SECRET_KEY)
        if item.kind == "campaigns":
            self._check_campaign(item, known)

    def _is_own(self, record: Any) -> bool:
        owner = record.venue.company_id if isinstance(record, Beacon) else record.company_id
        return self.company is not None and bool(owner == self.company.id)

    def _check_campaign(self, item: _Item, known: Campaign | None) -> None:
        for place, triple in item.values.get("beacons", ()):
            beacon = self.records.get(("beacons", triple))
            is_own = beacon is not None and self._is_own(beacon)
            if not is_own and ("beacons", triple) not in self.listed:
                self.faults.note(place, f"{triple} is not a beacon of this company")
        for attribute, kind in _BY_NAME.items():
            for name in item.values.get(attribute, ()):
                reference = (kind, (item.venue, name))
                if reference not in self.records and reference not in self.listed:
                    message = f"{name!r} is not in the venue's list of {kind}"
                    self.faults.note(f"{item.place}.{attribute}", message)
        kept = {name: getattr(known, name) for name in CONTENT_FIELDS} if known else {}
        try:
            check_content(self.limits, kept | item.values, kept)
        except LimitError as error:
            self.faults.note(f"{item.place}.{error.field}", str(error))

    async def _write(self, item: _Item, known: Any) -> None:
        """Write a record whose fields are all there."""
        venue = self.records.get(("venues", (item.venue,)))
        values, on_create = await self._columns(item, known)
        for name, kind in _REFERENCES.items():
            if name in item.values:
                values[name] = self._referred(item, kind, item.values[name])
        if item.kind == "campaigns":
            values["scan_tags"] = [
                each
                for name in _SCAN_TAGS
                for each in values.pop(name, getattr(known, name, ()) if known else ())
            ]
            values["scan_tags"].sort(key=lambda each: each.id)
        if item.kind in _SCAN_TAGS:
            on_create |= {"company": self.company, "kind": _SCAN_TAGS[item.kind]}
        comes = known is None
        if item.kind == "beacons":
            comes = comes or known.venue is not venue
            values["venue"] = venue
        on_create |= {"company": self.company} if venue is None else {"venue": venue}
        kind = "connectors" if item.kind == "connector" else item.kind
        record = self._save(kind, known, _KINDS[item.kind].model, values, on_create)
        self.records[item.kind, item.key or ()] = record
        if isinstance(record, Beacon | Campaign):
            if comes and venue is not None:
                self.added[item.place.rpartition("[")[0]] = (type(record), venue)
            if comes or self.session.is_modified(record):
                self.grown.append((item.place, record))

    async def _columns(self, item: _Item, known: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The columns to set, and those of a new record only."""
        values = dict(item.values)
        if item.kind == "connector" and self.cipher is not None:
            return encrypted(self.cipher, known, values), {}
        if item.kind == "campaigns":
            days = known.weekdays if known else EVERY_DAY
            return campaign_columns(values, weekdays=days), dict(_HOURS)
        if item.kind != "accounts":
            return values, {}
        password, given = values.pop("password"), values.pop("permission", None)
        if known is not None:
            # The account holder may have changed the password: a file does not undo that.
            return values | {"permission": known.permission | (given or {})}, {}
        levels = ALL_PERMISSIONS if given is None else dict.fromkeys(AREAS, NOTHING) | given
        hashed = await asyncio.to_thread(hash_password, password)
        return values, {"permission": levels, "password_hash": hashed}

    def _save(
        self,
        kind: str,
        known: Any,
        model: Any,
        values: Mapping[str, Any],
        on_create: Mapping[str, Any] | None = None,
    ) -> Any:
        """Set the attributes that differ from the stored record, or add a new record."""
        if known is None:
            dates = [name for name in ("create_on", "update_on") if hasattr(model, name)]
            known = model(**{**(on_create or {}), **dict.fromkeys(dates, self.now), **values})
            self.session.add(known)
            self.summary[kind]["created"] += 1
            return known
        different = {key: each for key, each in values.items() if getattr(known, key) != each}
        self.summary[kind]["updated" if different else "unchanged"] += 1
        if different and hasattr(model, "update_on"):
            different["update_on"] = self.now
        for key, value in different.items():
            setattr(known, key, value)
        return known

    async def _load_tags(self, venues: Sequence[_Item]) -> None:
        """Find the tags that places and campaigns name, and add new ones."""
        tags = {
            name: _Item("tags", each.place, {"name": name}, None)
            for venue in venues
            for each in chain(*venue.inside.values())
            for name in each.values.get("tags", ())
        }
        await self._load_all(list(tags.values()))

    def _referred(self, item: _Item, kind: str, names: Iterable[Any]) -> list[Any]:
        """The records in the order of a relationship."""
        keys = (name[1] if kind == "beacons" else item.key_of(kind, (name,)) for name in names)
        return sorted({self.records[kind, key] for key in keys}, key=lambda record: int(record.id))

    async def _check_limits(self, place: str) -> None:
        """Note the places that exceed a limit; `place` is the company's."""
        for each, (model, venue) in self.added.items():
            try:
                await check_venue_size(self.session, self.limits, model, venue.id)
            except LimitError as error:
                self.faults.note(each, str(error))
        if self.company is None:
            return
        try:
            await check_geofences(self.session, self.limits, self.company.id)
            await check_quiet_hours(self.session, self.company.id, joined(place, "quiet_hours"))
        except LimitError as error:
            self.faults.note(error.field, str(error))
        if not self.grown:
            return
        owner = self.company.id
        crowded = await crowded_beacons(self.session, self.limits, owner, self.now, true())
        for each, record in self.grown:
            if isinstance(record, Campaign):
                period = open_period(record)
                found = (one.fault(period) for one in crowded if record.id in one.campaigns)
            else:
                found = (one.fault() for one in crowded if record.id == one.id)
            if fault := next(filter(None, found), None):
                self.faults.note(each, fault)
