"""Finds the stored records of a document's company: the only SQL that a load reads."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute, contains_eager, selectinload

from catalog.chunks import chunked
from catalog.fields.venue import Triple
from catalog.load.document import DocumentCompany, DocumentRecord, triples_in
from catalog.models import (
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

_CHUNK = 500
M = TypeVar("M", bound=Base)

# (name of the venue, name of the record)
InVenue = tuple[str, str]


@dataclass
class StoredCompany:
    """A company's stored records by the names that a document uses.

    Accounts, applications and beacons are searched on the whole platform, because their names are
    unique there: a record may be another company's. Names that need not be unique lead to lists.
    """

    company: Company | None = None
    accounts: dict[str, Account] = field(default_factory=dict)
    applications: dict[str, Application] = field(default_factory=dict)
    beacons: dict[Triple, Beacon] = field(default_factory=dict)
    devices: dict[str, Device] = field(default_factory=dict)
    connector: Connector | None = None
    tags: dict[str, Tag] = field(default_factory=dict)
    venues: dict[str, list[Venue]] = field(default_factory=dict)
    geofences: dict[InVenue, list[Geofence]] = field(default_factory=dict)
    campaigns: dict[InVenue, list[Campaign]] = field(default_factory=dict)

    def is_foreign(self, record: Account | Application | Beacon | None) -> bool:
        """Whether the record exists and belongs to another company."""
        if record is None:
            return False
        owner = record.venue.company_id if isinstance(record, Beacon) else record.company_id
        return self.company is None or owner != self.company.id


async def find_stored(session: AsyncSession, item: DocumentCompany) -> StoredCompany:
    """Find a document's company. Values that were refused may be missing from `item`."""
    # Locked, so that two loads of one company do not each create the same venue.
    query = select(Company).where(Company.name == item.values.get("name"))
    query = query.with_for_update(key_share=True)  # as catalog.limits.lock_company
    stored = StoredCompany(
        company=await session.scalar(query),
        accounts=await _by_name(session, Account, Account.email, item.accounts),
        applications=await _by_name(session, Application, Application.api_key, item.applications),
        beacons=await _beacons(session, triples_in(item)),
    )
    if stored.company is not None:
        await _find_own(session, item, stored, stored.company.id)
    return stored


async def _find_own(
    session: AsyncSession, item: DocumentCompany, stored: StoredCompany, company_id: int
) -> None:
    own = Device.company_id == company_id
    stored.devices = await _by_name(session, Device, Device.udid, item.devices, own)
    own = Connector.company_id == company_id
    stored.connector = await session.scalar(select(Connector).where(own))
    tags = await session.scalars(select(Tag).where(Tag.company_id == company_id))
    stored.tags = {tag.name: tag for tag in tags}
    venues = await session.scalars(select(Venue).where(Venue.company_id == company_id))
    stored.venues = _listed(venues, lambda venue: venue.name)
    named = {venue.values["name"] for venue in item.venues if "name" in venue.values}
    ids = {v.id: v.name for name in named for v in stored.venues.get(name, [])}
    fences = await session.scalars(select(Geofence).where(Geofence.venue_id.in_(ids)))
    stored.geofences = _listed(fences, lambda fence: (ids[fence.venue_id], fence.name))
    relations = (Campaign.beacons, Campaign.tags, Campaign.geofencings)
    query = (
        select(Campaign).where(Campaign.venue_id.in_(ids)).options(*map(selectinload, relations))
    )
    campaigns = await session.scalars(query)
    stored.campaigns = _listed(campaigns, lambda c: (ids[c.venue_id], c.name))


async def _by_name(
    session: AsyncSession,
    model: type[M],
    key: InstrumentedAttribute[str],
    items: Iterable[DocumentRecord],
    *conditions: ColumnElement[bool],
) -> dict[str, M]:
    named = [item.values[key.key] for item in items if key.key in item.values]
    found: dict[str, M] = {}
    for chunk in chunked(named, _CHUNK):
        query = select(model).where(key.in_(chunk), *conditions)
        found |= {getattr(record, key.key): record for record in await session.scalars(query)}
    return found


async def _beacons(session: AsyncSession, triples: Iterable[Triple]) -> dict[Triple, Beacon]:
    found: dict[Triple, Beacon] = {}
    for chunk in chunked(triples, _CHUNK):
        query = (
            select(Beacon)
            .join(Beacon.venue)
            .where(tuple_(Beacon.uuid, Beacon.major, Beacon.minor).in_(chunk))
            .options(contains_eager(Beacon.venue), selectinload(Beacon.tags))
        )
        for beacon in await session.scalars(query):
            found[Triple(beacon.uuid, beacon.major, beacon.minor)] = beacon
    return found


def _listed(records: Iterable[M], key: Callable[[M], Any]) -> dict[Any, list[M]]:
    found: dict[Any, list[M]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return found
