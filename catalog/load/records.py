"""Finds the stored records of a document's companies, and writes and counts what it changes."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Select, inspect, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import contains_eager, selectinload

from catalog.accounts import hash_password
from catalog.chunks import chunked
from catalog.errors import SecretKeyError
from catalog.inputs import ALL_PERMISSIONS, AREAS, NOTHING, Triple, campaign_columns
from catalog.limits import CatalogLimits, scope_of
from catalog.load.document import DocumentRecord, triples_in
from catalog.models import (
    EVERY_DAY,
    Account,
    Application,
    Base,
    Beacon,
    Campaign,
    Company,
    Connector,
    Device,
    Geofence,
    Tag,
    Venue,
)
from catalog.secrets import MISSING_SECRET_KEY, Cipher, encrypted

_CHUNK = 500
_HOURS = {"start_minute": 0, "end_minute": 24 * 60}
M = TypeVar("M", bound=Base)
T = TypeVar("T", Beacon, Geofence, Tag)


@dataclass
class RecordCount:
    """How many records of one kind were created, updated or left unchanged."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0


@dataclass
class LoadSummary:
    """Counts by kind: companies, accounts, applications, connectors, devices, venues, tags,
    beacons, geofences, campaigns.
    """

    counts: dict[str, RecordCount] = field(default_factory=dict)

    def of(self, kind: str) -> RecordCount:
        """The count of a kind, to read or to increase."""
        return self.counts.setdefault(kind, RecordCount())

    @property
    def changed(self) -> bool:
        """Whether anything was created or updated."""
        return any(count.created or count.updated for count in self.counts.values())

    def lines(self) -> list[str]:
        """A line per kind, for people."""
        return [
            f"{kind}: {count.created} created, {count.updated} updated, {count.unchanged} unchanged"
            for kind, count in self.counts.items()
        ]


@dataclass
class StoredCompany:
    """A company's stored records, by kind and the name that a document uses for them.

    The names of accounts (e-mail), applications (api_key) and beacons (triple) are unique on the
    whole platform, so such a record may be another company's. A name of a venue, geofence or
    campaign may be that of several records; the latter two are named with their venue.
    """

    company: Company | None = None
    found: defaultdict[tuple[str, Hashable], list[Any]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def all(self, kind: str, name: Hashable) -> list[Any]:
        """Every record of this name."""
        return self.found.get((kind, name), [])

    def one(self, kind: str, name: Hashable) -> Any:
        """The first record of this name, or None."""
        return next(iter(self.all(kind, name)), None)

    def is_foreign(self, record: Account | Application | Beacon | None) -> bool:
        """Whether the record exists and belongs to another company."""
        if record is None:
            return False
        owner = record.venue.company_id if isinstance(record, Beacon) else record.company_id
        return self.company is None or owner != self.company.id


async def find_stored(session: AsyncSession, item: DocumentRecord) -> StoredCompany:
    """Find a document's company. Values that were refused may be missing from `item`."""
    # Locked, so that two loads of one company do not each create the same venue.
    query = select(Company).where(Company.name == item.values.get("name"))
    query = query.with_for_update(key_share=True)  # as catalog.limits.lock_company
    stored = StoredCompany(await session.scalar(query))

    async def find(
        kind: str,
        query: Select[Any],
        key: Any,
        names: Iterable[Any],
        name: Callable[[Any], Hashable],
    ) -> None:
        for chunk in chunked(names, _CHUNK):
            for record in await session.scalars(query.where(key.in_(chunk))):
                stored.found[kind, name(record)].append(record)

    emails, keys = _given(item, "accounts", "email"), _given(item, "applications", "api_key")
    await find("accounts", select(Account), Account.email, emails, lambda a: a.email)
    await find("applications", select(Application), Application.api_key, keys, lambda a: a.api_key)
    with_venue = select(Beacon).join(Beacon.venue)
    with_venue = with_venue.options(contains_eager(Beacon.venue), selectinload(Beacon.tags))
    triple = tuple_(Beacon.uuid, Beacon.major, Beacon.minor)
    named = triples_in(item)
    await find("beacons", with_venue, triple, named, lambda b: Triple(b.uuid, b.major, b.minor))
    if stored.company is None:
        return stored
    of_company = stored.company.id
    udids, names = _given(item, "devices", "udid"), _given(item, "venues", "name")
    devices = select(Device).where(Device.company_id == of_company)
    venues = select(Venue).where(Venue.company_id == of_company)
    await find("devices", devices, Device.udid, udids, lambda d: d.udid)
    await find("venues", venues, Venue.name, names, lambda v: v.name)
    owner = [of_company]
    await find("tags", select(Tag), Tag.company_id, owner, lambda tag: tag.name)
    await find("connectors", select(Connector), Connector.company_id, owner, lambda _: None)
    ids = {v.id: v.name for name in names for v in stored.all("venues", name)}
    relations = (Campaign.beacons, Campaign.tags, Campaign.geofencings)
    campaigns = select(Campaign).options(*map(selectinload, relations))
    await find(
        "geofences", select(Geofence), Geofence.venue_id, ids, lambda f: (ids[f.venue_id], f.name)
    )
    await find("campaigns", campaigns, Campaign.venue_id, ids, lambda c: (ids[c.venue_id], c.name))
    return stored


def _given(item: DocumentRecord, kind: str, attribute: str) -> list[Any]:
    """The values of an attribute in the records of a kind, each once."""
    values = (each.values[attribute] for each in item.inside[kind] if attribute in each.values)
    return list(dict.fromkeys(values))


@dataclass(frozen=True, kw_only=True)
class RecordWriter:
    """Writes the records of a checked document. `now` is the instant of the load.

    `grown` has the beacons and campaigns that may exceed a limit now, with their places, and
    `added` the venues to which records were added, with the places of the lists.
    """

    session: AsyncSession
    cipher: Cipher | None
    limits: CatalogLimits
    now: datetime
    summary: LoadSummary = field(default_factory=LoadSummary)
    grown: list[tuple[str, Beacon | Campaign]] = field(default_factory=list)
    added: dict[str, tuple[type[Beacon | Campaign], Venue]] = field(default_factory=dict)

    def save(
        self,
        kind: str,
        stored: M | None,
        model: type[M],
        values: Mapping[str, Any],
        *,
        on_create: Mapping[str, Any] | None = None,
        on_change: Mapping[str, Any] | None = None,
    ) -> M:
        """Set the attributes that differ from the stored record, or add a new record.

        A new record gets `on_create` as well, and a stored one that differs gets `on_change`.
        """
        count = self.summary.of(kind)
        if stored is None:
            created = model(**values, **(on_create or {}))
            self.session.add(created)
            count.created += 1
            return created
        different = {k: v for k, v in values.items() if getattr(stored, k) != v}
        if different:
            different |= on_change or {}
            count.updated += 1
        else:
            count.unchanged += 1
        for key, value in different.items():
            setattr(stored, key, value)
        return stored


async def write_company(
    writer: RecordWriter, item: DocumentRecord, stored: StoredCompany
) -> Company:
    """Write the company and everything in it."""
    now = {"create_on": writer.now}
    company = writer.save("companies", stored.company, Company, item.values, on_create=now)
    owner = {"company": company}
    for account in item.inside["accounts"]:
        await _write_account(writer, company, dict(account.values), stored)
    for each in item.inside["applications"]:
        known = stored.one("applications", each.values["api_key"])
        writer.save("applications", known, Application, each.values, on_create=owner)
    seen = {"update_on": writer.now}
    for each in item.inside["devices"]:
        device = stored.one("devices", each.values["udid"])
        new = owner | now | seen
        writer.save("devices", device, Device, each.values, on_create=new, on_change=seen)
    for each in item.inside["connector"]:
        if writer.cipher is None:
            raise SecretKeyError(MISSING_SECRET_KEY)
        connector = stored.one("connectors", None)
        values = encrypted(writer.cipher, connector, each.values)
        writer.save("connectors", connector, Connector, values, on_create=owner)
    _VenueWriter(writer, company, stored).write(item)
    return company


async def _write_account(
    writer: RecordWriter, company: Company, values: dict[str, Any], stored: StoredCompany
) -> None:
    password = values.pop("password")
    given = values.pop("permission", None)
    account = stored.one("accounts", values["email"])
    if account is not None:
        # The account holder may have changed the password: a file does not undo that.
        values["permission"] = account.permission | (given or {})
        writer.save("accounts", account, Account, values)
        return
    levels = ALL_PERMISSIONS if given is None else dict.fromkeys(AREAS, NOTHING) | given
    new = {
        "company": company,
        "permission": levels,
        "password_hash": await asyncio.to_thread(hash_password, password),
        "create_on": writer.now,
    }
    writer.save("accounts", None, Account, values, on_create=new)


class _VenueWriter:
    """Writes a company's venues. A campaign may refer to new and stored records."""

    def __init__(self, writer: RecordWriter, company: Company, stored: StoredCompany) -> None:
        self._writer = writer
        self._company = company
        self._stored = stored
        self._tags: dict[str, Tag] = {}
        self._beacons: dict[Triple, Beacon] = {}
        self._geofences: dict[tuple[str, str], Geofence] = {}

    def write(self, item: DocumentRecord) -> None:
        """Write them; beacons first, since a campaign may target another venue's."""
        for venue_item in item.inside["venues"]:
            for part in (*venue_item.inside["beacons"], *venue_item.inside["campaigns"]):
                for name in part.values.get("tags", []):
                    self._write_tag(name)
        venues = [(venue, self._write_venue(venue)) for venue in item.inside["venues"]]
        for venue_item, venue in venues:
            for beacon in venue_item.inside["beacons"]:
                self._write_beacon(venue, beacon, f"{venue_item.place}.beacons")
        for venue_item, venue in venues:
            self._write_geofences(venue, venue_item)
            for campaign in venue_item.inside["campaigns"]:
                self._write_campaign(venue, campaign, f"{venue_item.place}.campaigns")

    def _write_tag(self, name: str) -> None:
        if name not in self._tags:
            values = {"name": name, "company": self._company}
            known = self._stored.one("tags", name)
            if known is None:
                self._tags[name] = self._writer.save("tags", None, Tag, values)
            else:
                self._tags[name] = known
                self._writer.summary.of("tags").unchanged += 1

    def _write_venue(self, item: DocumentRecord) -> Venue:
        known: Venue | None = self._stored.one("venues", item.values["name"])
        new = {"company": self._company}
        return self._writer.save("venues", known, Venue, item.values, on_create=new)

    def _write_beacon(self, venue: Venue, item: DocumentRecord, listed: str) -> None:
        values = item.values | self._tags_of(item) | {"venue": venue}
        triple = Triple(values["uuid"], values["major"], values["minor"])
        known: Beacon | None = self._stored.one("beacons", triple)
        carried = set() if known is None else set(known.tags)
        comes = known is None or known.venue is not venue
        beacon = self._beacons[triple] = self._writer.save("beacons", known, Beacon, values)
        if comes:
            self._writer.added[listed] = (Beacon, venue)
        if comes or not carried.issuperset(beacon.tags):
            self._writer.grown.append((item.place, beacon))

    def _write_geofences(self, venue: Venue, item: DocumentRecord) -> None:
        new = {"venue": venue}
        for fence in item.inside["geofences"]:
            key = (venue.name, fence.values["name"])
            known = self._stored.one("geofences", key)
            made = self._writer.save("geofences", known, Geofence, fence.values, on_create=new)
            self._geofences[key] = made

    def _write_campaign(self, venue: Venue, item: DocumentRecord, listed: str) -> None:
        known: Campaign | None = self._stored.one("campaigns", (venue.name, item.values["name"]))
        mask = known.weekdays if known else EVERY_DAY
        values = campaign_columns(item.values, weekdays=mask) | self._tags_of(item)
        if "beacons" in item.values:
            triples = (triple for _, triple in item.values["beacons"])
            values["beacons"] = _in_order(
                self._beacons.get(each) or self._stored.one("beacons", each) for each in triples
            )
        if "geofencings" in item.values:
            names = ((venue.name, name) for name in item.values["geofencings"])
            values["geofencings"] = _in_order(
                self._geofences.get(each) or self._stored.one("geofences", each) for each in names
            )
        before = scope_of(known) if known else None
        if known is None:
            values = _HOURS | values | {"venue": venue}
            self._writer.added[listed] = (Campaign, venue)
        campaign = self._writer.save("campaigns", known, Campaign, values)
        if scope_of(campaign).goes_beyond(before):
            self._writer.grown.append((item.place, campaign))

    def _tags_of(self, item: DocumentRecord) -> dict[str, Any]:
        if "tags" not in item.values:
            return {}
        return {"tags": _in_order(self._tags[name] for name in item.values["tags"])}


def _in_order(records: Iterable[T]) -> list[T]:
    """Records in the order of a relationship: stored ones by id, then new ones as they come."""
    new: list[T] = []
    known: list[T] = []
    for record in dict.fromkeys(records):
        (known if inspect(record).persistent else new).append(record)
    return sorted(known, key=lambda record: record.id) + new
