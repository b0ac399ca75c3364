"""Finds faults that no single record shows: in the document, with the catalog, once written.

Values that were refused may be missing from the records, so that one run finds all faults.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import true

from catalog.errors import LimitError
from catalog.fields.base import Faults
from catalog.fields.venue import Triple
from catalog.limits import CONTENT_FIELDS, CatalogLimits, check_content, check_venue_size
from catalog.load.document import DocumentCompany, DocumentRecord, DocumentVenue, triple_of
from catalog.load.record_writer import RecordWriter
from catalog.load.stored_records import StoredCompany
from catalog.models import Beacon, Campaign, Company
from catalog.open_campaigns import (
    CrowdedBeacon,
    Period,
    crowded_beacons,
    crowded_message,
    open_period,
)
from catalog.secrets import MISSING_SECRET_KEY

_KeyAndPlace = tuple[Hashable, str]


def note_repeats(companies: Iterable[DocumentCompany], faults: Faults) -> None:
    """Note each record whose natural key occurs twice in the document, with the other place."""
    first: dict[Hashable, str] = {}
    for key, place in _keys(companies):
        seen = first.setdefault(key, place)
        if seen != place:
            faults.note(place, f"the same as {seen}")


def _keys(companies: Iterable[DocumentCompany]) -> Iterator[_KeyAndPlace]:
    for company in companies:
        name = company.values.get("name", company.place)
        yield ("company", name), f"{company.place}.name"
        yield from _of(company.accounts, "email", "account")
        yield from _of(company.applications, "api_key", "application")
        yield from _of(company.devices, "udid", "device", name)
        yield from _of(company.venues, "name", "venue", name)
        for venue in company.venues:
            yield from _of(venue.geofences, "name", "geofence", venue.place)
            yield from _of(venue.campaigns, "name", "campaign", venue.place)
            for beacon in venue.beacons:
                if triple := triple_of(beacon.values):
                    yield triple, beacon.place


def _of(items: Iterable[DocumentRecord], attribute: str, *within: Any) -> Iterator[_KeyAndPlace]:
    for item in items:
        if attribute in item.values:
            yield (*within, item.values[attribute]), f"{item.place}.{attribute}"


_FOREIGN = "belongs to another company"


def check(
    item: DocumentCompany,
    stored: StoredCompany,
    *,
    encrypts: bool,
    limits: CatalogLimits,
    faults: Faults,
) -> None:
    """Note the faults of a company. `encrypts` says whether there is a key to encrypt with."""
    for account in item.accounts:
        if stored.is_foreign(stored.accounts.get(account.values.get("email", ""))):
            faults.note(f"{account.place}.email", _FOREIGN, value=account.values["email"])
    for application in item.applications:
        if stored.is_foreign(stored.applications.get(application.values.get("api_key", ""))):
            faults.note(f"{application.place}.api_key", _FOREIGN)
    if item.connector is not None and not encrypts:
        faults.note(item.connector.place, MISSING_SECRET_KEY)
    own = {
        triple
        for venue in item.venues
        for beacon in venue.beacons
        if (triple := triple_of(beacon.values))
    }
    for venue in item.venues:
        _check_venue(venue, stored, own, faults)
        _check_contents(venue, stored, limits, faults)


def _check_venue(
    venue: DocumentVenue, stored: StoredCompany, own: set[Triple], faults: Faults
) -> None:
    name = venue.values.get("name", "")
    _check_single(stored.venues.get(name, []), "venues", venue, faults)
    for beacon in venue.beacons:
        triple = triple_of(beacon.values)
        if triple is not None and stored.is_foreign(stored.beacons.get(triple)):
            faults.note(beacon.place, f"{triple} {_FOREIGN}")
    for fence in venue.geofences:
        known = stored.geofences.get((name, fence.values.get("name", "")), [])
        _check_single(known, "geofences", fence, faults)
    fences = {fence.values.get("name") for fence in venue.geofences}
    fences |= {fence for at, fence in stored.geofences if at == name}
    for campaign in venue.campaigns:
        same = stored.campaigns.get((name, campaign.values.get("name", "")), [])
        _check_single(same, "campaigns", campaign, faults)
        _check_references(campaign, stored, own, fences, faults)


def _check_contents(
    venue: DocumentVenue, stored: StoredCompany, limits: CatalogLimits, faults: Faults
) -> None:
    for campaign in venue.campaigns:
        key = (venue.values.get("name", ""), campaign.values.get("name", ""))
        known = stored.campaigns.get(key, [])
        kept = {name: getattr(known[0], name) for name in CONTENT_FIELDS} if known else {}
        try:
            check_content(limits, kept | campaign.values, kept)
        except LimitError as error:
            faults.note(f"{campaign.place}.{error.field}", str(error))


def _check_single(known: Sequence[Any], kind: str, item: DocumentRecord, faults: Faults) -> None:
    if len(known) > 1:
        faults.note(
            f"{item.place}.name",
            f"{len(known)} {kind} have this name: rename all but one",
            value=item.values["name"],
        )


def _check_references(
    campaign: DocumentRecord,
    stored: StoredCompany,
    own: set[Triple],
    fences: set[Any],
    faults: Faults,
) -> None:
    for place, triple in campaign.values.get("beacons", []):
        known = stored.beacons.get(triple)
        if triple not in own and (known is None or stored.is_foreign(known)):
            faults.note(place, f"{triple} is not a beacon of this company")
    for name in campaign.values.get("geofencings", []):
        if name not in fences:
            faults.note(f"{campaign.place}.geofencings", "not a geofence of the venue", value=name)


async def check_room_left(
    writer: RecordWriter, company: Company, limits: CatalogLimits, faults: Faults
) -> None:
    """Note the places that exceed a limit among the records written since the last call."""
    for place, (model, venue) in writer.added.items():
        try:
            await check_venue_size(writer.session, limits, model, venue.id)
        except LimitError as error:
            faults.note(place, str(error))
    if writer.grown:
        grown = _Grown(writer.grown)
        async for crowd in crowded_beacons(writer.session, limits, company.id, writer.now, true()):
            for place, peak in grown.in_crowd(crowd):
                faults.note(place, crowded_message(limits, crowd, peak))
    writer.added.clear()
    writer.grown.clear()


class _Grown:
    """The records that have grown. Each is reported for one crowded beacon only."""

    def __init__(self, grown: Iterable[tuple[str, Beacon | Campaign]]) -> None:
        self._beacons: dict[int, str] = {}
        self._campaigns: dict[int, tuple[str, Period]] = {}
        self._seen: set[frozenset[int]] = set()
        for place, record in grown:
            if isinstance(record, Campaign):
                self._campaigns[record.id] = (place, open_period(record))
            else:
                self._beacons[record.id] = place

    def in_crowd(self, crowd: CrowdedBeacon) -> Iterator[tuple[str, int]]:
        """Their places, and how many are open there at once."""
        if place := self._beacons.pop(crowd.beacon_id, None):
            yield place, crowd.peak()
        if crowd.campaigns in self._seen:  # many beacons with one tag
            return
        self._seen.add(crowd.campaigns)
        for number in sorted(crowd.campaigns & self._campaigns.keys()):
            place, span = self._campaigns[number]
            if peak := crowd.peak(span):
                del self._campaigns[number]
                yield place, peak
