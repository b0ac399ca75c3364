"""Finds faults that no single record shows: in the document, with the catalog, once written.

Values that were refused may be missing from the records, so that one run finds all faults.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from sqlalchemy import true

from catalog.errors import LimitError
from catalog.fields import Faults
from catalog.inputs import Triple
from catalog.limits import (
    CONTENT_FIELDS,
    CrowdedBeacon,
    check_content,
    check_venue_size,
    crowded_beacons,
    crowded_message,
    open_period,
)
from catalog.load.document import DocumentRecord
from catalog.load.records import RecordWriter, StoredCompany
from catalog.models import Beacon, Campaign, Company
from catalog.secrets import MISSING_SECRET_KEY

_FOREIGN = "belongs to another company"


def note_repeats(companies: Iterable[DocumentRecord], faults: Faults) -> None:
    """Note each record whose natural key occurs twice in the document, with the other place."""
    first: dict[Hashable, str] = {}
    for key, place in _keys(companies):
        seen = first.setdefault(key, place)
        if seen != place:
            faults.note(place, f"the same as {seen}")


def _keys(companies: Iterable[DocumentRecord]) -> Iterator[tuple[Hashable, str]]:
    for company in companies:
        name = company.values.get("name", company.place)
        yield ("companies", name), f"{company.place}.name"
        yield from _keys_in(company, "accounts", "email")
        yield from _keys_in(company, "applications", "api_key")
        yield from _keys_in(company, "devices", "udid", name)
        yield from _keys_in(company, "venues", "name", name)
        for venue in company.inside["venues"]:
            yield from _keys_in(venue, "geofences", "name", venue.place)
            yield from _keys_in(venue, "campaigns", "name", venue.place)
            for beacon in venue.inside["beacons"]:
                if beacon.triple:
                    yield beacon.triple, beacon.place


def _keys_in(
    item: DocumentRecord, kind: str, attribute: str, *within: Any
) -> Iterator[tuple[Hashable, str]]:
    for each in item.inside[kind]:
        if attribute in each.values:
            yield (kind, *within, each.values[attribute]), f"{each.place}.{attribute}"


def check_against_stored(
    writer: RecordWriter, item: DocumentRecord, stored: StoredCompany, faults: Faults
) -> None:
    """Note the faults of a company that its stored records show."""
    for account in item.inside["accounts"]:
        email = account.values.get("email")
        if stored.is_foreign(stored.one("accounts", email)):
            faults.note(f"{account.place}.email", _FOREIGN, value=email)
    for application in item.inside["applications"]:
        if stored.is_foreign(stored.one("applications", application.values.get("api_key"))):
            faults.note(f"{application.place}.api_key", _FOREIGN)
    for connector in item.inside["connector"]:
        if writer.cipher is None:
            faults.note(connector.place, MISSING_SECRET_KEY)
    venues = item.inside["venues"]
    own = {beacon.triple for venue in venues for beacon in venue.inside["beacons"]}
    for venue in venues:
        _check_venue(writer, venue, stored, own, faults)


def _check_venue(
    writer: RecordWriter,
    venue: DocumentRecord,
    stored: StoredCompany,
    own: set[Triple | None],
    faults: Faults,
) -> None:
    name = venue.values.get("name")
    _check_single("venues", name, venue, stored, faults)
    for beacon in venue.inside["beacons"]:
        if stored.is_foreign(stored.one("beacons", beacon.triple)):
            faults.note(beacon.place, f"{beacon.triple} {_FOREIGN}")
    fences = {fence.values.get("name") for fence in venue.inside["geofences"]}
    for fence in venue.inside["geofences"]:
        _check_single("geofences", (name, fence.values.get("name")), fence, stored, faults)
    for campaign in venue.inside["campaigns"]:
        key = (name, campaign.values.get("name"))
        _check_single("campaigns", key, campaign, stored, faults)
        for place, triple in campaign.values.get("beacons", []):
            known = stored.one("beacons", triple)
            if triple not in own and (known is None or stored.is_foreign(known)):
                faults.note(place, f"{triple} is not a beacon of this company")
        for fenced in campaign.values.get("geofencings", []):
            if fenced not in fences and stored.one("geofences", (name, fenced)) is None:
                faults.note(
                    f"{campaign.place}.geofencings", "not a geofence of the venue", value=fenced
                )
        _check_content(writer, campaign, stored.one("campaigns", key), faults)


def _check_single(
    kind: str, name: Hashable, item: DocumentRecord, stored: StoredCompany, faults: Faults
) -> None:
    count = len(stored.all(kind, name))
    if count > 1:
        message = f"{count} {kind} have this name: rename all but one"
        faults.note(f"{item.place}.name", message, value=item.values["name"])


def _check_content(
    writer: RecordWriter, item: DocumentRecord, known: Campaign | None, faults: Faults
) -> None:
    kept = {name: getattr(known, name) for name in CONTENT_FIELDS} if known else {}
    try:
        check_content(writer.limits, kept | item.values, kept)
    except LimitError as error:
        faults.note(f"{item.place}.{error.field}", str(error))


async def check_room_left(writer: RecordWriter, company: Company, faults: Faults) -> None:
    """Note the places that exceed a limit among the records written since the last call."""
    limits = writer.limits
    for place, (model, venue) in writer.added.items():
        try:
            await check_venue_size(writer.session, limits, model, venue.id)
        except LimitError as error:
            faults.note(place, str(error))
    if writer.grown:
        async for crowd in crowded_beacons(writer.session, limits, company.id, writer.now, true()):
            for place, record in list(writer.grown):
                if peak := _peak(crowd, record):
                    faults.note(place, crowded_message(limits, crowd, peak))
                    writer.grown.remove((place, record))  # once is enough
    writer.added.clear()
    writer.grown.clear()


def _peak(crowd: CrowdedBeacon, record: Beacon | Campaign) -> int:
    """How many campaigns are open at the crowded beacon because of the record; 0 if none is."""
    if isinstance(record, Campaign):
        return crowd.peak(open_period(record)) if record.id in crowd.campaigns else 0
    return crowd.peak() if record.id == crowd.beacon_id else 0
