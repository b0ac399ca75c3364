"""Writes venues and their tags, beacons, geofences and campaigns."""

from dataclasses import dataclass, field
from typing import Any

from catalog.fields.campaign import campaign_columns
from catalog.fields.venue import Triple
from catalog.load.document import DocumentCompany, DocumentRecord, DocumentVenue
from catalog.load.record_writer import RecordWriter, in_order
from catalog.load.stored_records import StoredCompany
from catalog.models import EVERY_DAY, Beacon, Campaign, Company, Geofence, Tag, Venue
from catalog.open_campaigns import scope_of

_HOURS = {"start_minute": 0, "end_minute": 24 * 60}


@dataclass
class ReferableRecords:
    """The records, stored and new ones, that a campaign may refer to."""

    tags: dict[str, Tag]
    beacons: dict[Triple, Beacon]
    geofences: dict[str, Geofence] = field(default_factory=dict)


def write_venues(
    writer: RecordWriter, company: Company, item: DocumentCompany, stored: StoredCompany
) -> None:
    """Write a company's venues; beacons first, since a campaign may target another venue's."""
    referable = ReferableRecords(_write_tags(writer, company, item, stored), dict(stored.beacons))
    venues = [(venue, _write_venue(writer, company, venue, stored)) for venue in item.venues]
    for venue_item, venue in venues:
        for beacon in venue_item.beacons:
            _write_beacon(writer, referable, venue, beacon, f"{venue_item.place}.beacons")
    for venue_item, venue in venues:
        referable.geofences = _write_geofences(writer, venue, venue_item, stored)
        for campaign in venue_item.campaigns:
            _write_campaign(writer, referable, venue, campaign, stored, venue_item.place)


def _write_tags(
    writer: RecordWriter, company: Company, item: DocumentCompany, stored: StoredCompany
) -> dict[str, Tag]:
    tags = dict(stored.tags)
    tagged = (part for venue in item.venues for part in (*venue.beacons, *venue.campaigns))
    for name in dict.fromkeys(name for part in tagged for name in part.values.get("tags", [])):
        if name in tags:
            writer.summary.of("tags").unchanged += 1
        else:
            new = {"name": name, "company": company}
            tags[name] = writer.save("tags", None, Tag, new)
    return tags


def _write_venue(
    writer: RecordWriter, company: Company, item: DocumentVenue, stored: StoredCompany
) -> Venue:
    known = next(iter(stored.venues.get(item.values["name"], [])), None)
    return writer.save("venues", known, Venue, item.values, on_create={"company": company})


def _write_beacon(
    writer: RecordWriter,
    referable: ReferableRecords,
    venue: Venue,
    item: DocumentRecord,
    listed: str,
) -> None:
    values = item.values | _tags(referable, item) | {"venue": venue}
    triple = Triple(values["uuid"], values["major"], values["minor"])
    known = referable.beacons.get(triple)
    carried = set() if known is None else set(known.tags)
    comes = known is None or known.venue is not venue
    beacon = referable.beacons[triple] = writer.save("beacons", known, Beacon, values)
    if comes:
        writer.added[listed] = (Beacon, venue)
    if comes or not carried.issuperset(beacon.tags):
        writer.grown.append((item.place, beacon))


def _tags(referable: ReferableRecords, item: DocumentRecord) -> dict[str, Any]:
    if "tags" not in item.values:
        return {}
    return {"tags": in_order(referable.tags[name] for name in item.values["tags"])}


def _write_geofences(
    writer: RecordWriter, venue: Venue, item: DocumentVenue, stored: StoredCompany
) -> dict[str, Geofence]:
    fences = {name: known[0] for (at, name), known in stored.geofences.items() if at == venue.name}
    for fence in item.geofences:
        known = fences.get(name := fence.values["name"])
        new = {"venue": venue}
        fences[name] = writer.save("geofences", known, Geofence, fence.values, on_create=new)
    return fences


def _write_campaign(
    writer: RecordWriter,
    referable: ReferableRecords,
    venue: Venue,
    item: DocumentRecord,
    stored: StoredCompany,
    place: str,
) -> None:
    known = next(iter(stored.campaigns.get((venue.name, item.values["name"]), [])), None)
    mask = known.weekdays if known else EVERY_DAY
    values = campaign_columns(item.values, weekdays=mask) | _references(referable, item)
    before = scope_of(known) if known else None
    if known is None:
        values = _HOURS | values | {"venue": venue}
        writer.added[f"{place}.campaigns"] = (Campaign, venue)
    campaign = writer.save("campaigns", known, Campaign, values)
    if scope_of(campaign).goes_beyond(before):
        writer.grown.append((item.place, campaign))


def _references(referable: ReferableRecords, item: DocumentRecord) -> dict[str, Any]:
    found = _tags(referable, item)
    if "beacons" in item.values:
        found["beacons"] = in_order(
            referable.beacons[triple] for _, triple in item.values["beacons"]
        )
    if "geofencings" in item.values:
        found["geofencings"] = in_order(referable.geofences[n] for n in item.values["geofencings"])
    return found
