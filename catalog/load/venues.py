"""Writes venues and what is in them: tags, beacons, geofences, campaigns."""

from dataclasses import dataclass, field
from typing import Any

from catalog.crowding import reach_of
from catalog.fields.campaign import campaign_columns
from catalog.fields.venue import Triple
from catalog.load.document import DocumentCompany, DocumentRecord, DocumentVenue
from catalog.load.stored import Stored
from catalog.load.writing import Writer, in_order
from catalog.models import EVERY_DAY, Beacon, Campaign, Company, Geofence, Tag, Venue

_HOURS = {"start_minute": 0, "end_minute": 24 * 60}


@dataclass
class Places:
    """The records that a campaign may refer to: stored ones and new ones."""

    tags: dict[str, Tag]
    beacons: dict[Triple, Beacon]
    geofences: dict[str, Geofence] = field(default_factory=dict)


def write_venues(writer: Writer, company: Company, item: DocumentCompany, stored: Stored) -> None:
    """The venues of a company: all beacons first, for a campaign may target another venue's."""
    places = Places(_write_tags(writer, company, item, stored), dict(stored.beacons))
    venues = [(venue, _write_venue(writer, company, venue, stored)) for venue in item.venues]
    for venue_item, venue in venues:
        for beacon in venue_item.beacons:
            _write_beacon(writer, places, venue, beacon, f"{venue_item.place}.beacons")
    for venue_item, venue in venues:
        places.geofences = _write_geofences(writer, venue, venue_item, stored)
        for campaign in venue_item.campaigns:
            _write_campaign(writer, places, venue, campaign, stored, venue_item.place)


def _write_tags(
    writer: Writer, company: Company, item: DocumentCompany, stored: Stored
) -> dict[str, Tag]:
    tags = dict(stored.tags)
    tagged = (part for venue in item.venues for part in (*venue.beacons, *venue.campaigns))
    for name in dict.fromkeys(name for part in tagged for name in part.values.get("tags", [])):
        if name in tags:
            writer.summary.of("tags").unchanged += 1
        else:
            tags[name] = writer.create("tags", Tag(name=name, company=company))
    return tags


def _write_venue(writer: Writer, company: Company, item: DocumentVenue, stored: Stored) -> Venue:
    for venue in stored.venues.get(item.values["name"], []):
        return writer.update("venues", venue, item.values)
    return writer.create("venues", Venue(**item.values, company=company))


def _write_beacon(
    writer: Writer, places: Places, venue: Venue, item: DocumentRecord, listed: str
) -> None:
    values = item.values | _tags(places, item)
    triple = Triple(values["uuid"], values["major"], values["minor"])
    beacon = places.beacons.get(triple)
    carried = () if beacon is None else tuple(beacon.tags)
    comes = beacon is None or beacon.venue is not venue
    if beacon is None:
        beacon = writer.create("beacons", Beacon(**values, venue=venue))
        places.beacons[triple] = beacon
    else:
        writer.update("beacons", beacon, values | {"venue": venue})
    if comes:
        writer.added[listed] = (Beacon, venue)
    if comes or not set(carried).issuperset(beacon.tags):
        writer.grown.append((item.place, beacon))


def _tags(places: Places, item: DocumentRecord) -> dict[str, Any]:
    if "tags" not in item.values:
        return {}
    return {"tags": in_order(places.tags[name] for name in item.values["tags"])}


def _write_geofences(
    writer: Writer, venue: Venue, item: DocumentVenue, stored: Stored
) -> dict[str, Geofence]:
    fences = {name: known[0] for (at, name), known in stored.geofences.items() if at == venue.name}
    for fence in item.geofences:
        name = fence.values["name"]
        if name in fences:
            writer.update("geofences", fences[name], fence.values)
        else:
            fences[name] = writer.create("geofences", Geofence(**fence.values, venue=venue))
    return fences


def _write_campaign(
    writer: Writer,
    places: Places,
    venue: Venue,
    item: DocumentRecord,
    stored: Stored,
    place: str,
) -> None:
    known = stored.campaigns.get((venue.name, item.values["name"]))
    mask = known[0].weekdays if known else EVERY_DAY
    values = campaign_columns(item.values, weekdays=mask) | _references(places, item)
    before = reach_of(known[0]) if known else None
    if known:
        campaign = writer.update("campaigns", known[0], values)
    else:
        campaign = writer.create("campaigns", Campaign(**_HOURS | values, venue=venue))
        writer.added[f"{place}.campaigns"] = (Campaign, venue)
    if reach_of(campaign).goes_beyond(before):
        writer.grown.append((item.place, campaign))


def _references(places: Places, item: DocumentRecord) -> dict[str, Any]:
    found = _tags(places, item)
    if "beacons" in item.values:
        found["beacons"] = in_order(places.beacons[triple] for _, triple in item.values["beacons"])
    if "geofencings" in item.values:
        found["geofencings"] = in_order(places.geofences[n] for n in item.values["geofencings"])
    return found
