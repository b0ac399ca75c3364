"""Venues, beacons and geofences."""

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import Field
from sqlalchemy import bindparam, select

from api.answers import Answer, Count, Id, Record, fill_texts
from api.records.page import RecordKind, columns_of
from catalog.models import Beacon, Geofence, Tag, Venue, beacon_tag
from catalog.reading import Reader, Reading


class VenueAnswer(Answer):
    id: Id
    name: str
    address: str
    active: bool
    width: Count | None
    height: Count | None
    image: str
    time_zone: str


class TagAnswer(Answer):
    id: Id
    name: str


class BeaconAnswer(Answer):
    id: Id
    name: str
    uuid: Annotated[str, Field(json_schema_extra={"format": "uuid"})]
    major: Count
    minor: Count
    active: bool
    proximity: Literal["immediate", "near", "far"]
    x: int | None
    y: int | None
    color: str
    tags: list[TagAnswer]


class GeofenceAnswer(Answer):
    id: Id
    name: str
    longitude: float
    latitude: float
    radius: Id
    active: bool


_BEACON = columns_of(BeaconAnswer, Beacon).join(Beacon.venue)
_TAGS = Reading(
    select(beacon_tag.c.beacon_id, Tag.id, Tag.name)
    .join_from(beacon_tag, Tag)
    .where(beacon_tag.c.beacon_id.in_(bindparam("beacons", expanding=True)))
    .order_by(Tag.id)
)
# Deleted ones too, because a trace may name one.
_WITH_DELETED = Reading(
    _BEACON.where(
        Venue.company_id == bindparam("company"),
        Beacon.id.in_(bindparam("beacons", expanding=True)),
    ),
    deleted=True,
)


def add_tags(reader: Reader, beacons: list[Record]) -> list[Record]:
    """Add to beacons the tags that they carry, in one query."""
    fill_texts(beacons, BeaconAnswer)
    tags: dict[int, list[Record]] = {record["id"]: [] for record in beacons}
    if beacons:
        for tag in reader.rows(_TAGS, beacons=list(tags)):
            tags[tag.pop("beacon_id")].append(tag)
    for record in beacons:
        record["tags"] = tags[record["id"]]
    return beacons


def beacons_with_deleted(reader: Reader, company_id: int, ids: Collection[int]) -> list[Record]:
    """Those of the beacons that are the company's, deleted ones included, in two queries."""
    if not ids:
        return []
    return add_tags(reader, reader.rows(_WITH_DELETED, company=company_id, beacons=list(ids)))


VENUES = RecordKind(
    "venue",
    VenueAnswer,
    columns_of(VenueAnswer, Venue),
    key=Venue.id,
    company=Venue.company_id,
)
BEACONS = RecordKind(
    "beacon",
    BeaconAnswer,
    _BEACON,
    key=Beacon.id,
    company=Venue.company_id,
    venue=Beacon.venue_id,
    complete=add_tags,
)
GEOFENCES = RecordKind(
    "geofence",
    GeofenceAnswer,
    columns_of(GeofenceAnswer, Geofence).join(Geofence.venue),
    key=Geofence.id,
    company=Venue.company_id,
    venue=Geofence.venue_id,
)
