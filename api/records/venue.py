"""Venues, beacons and geofences."""

from typing import Annotated, Literal

from pydantic import Field
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from api.answers import Answer, Count, Id, Record, fill_texts
from api.records.page import Page, Where, columns_of, fetch
from catalog.models import Beacon, Geofence, Tag, Venue, beacon_tag
from catalog.soft_deletion import with_deleted


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


_VENUE = columns_of(VenueAnswer, Venue)
_BEACON = columns_of(BeaconAnswer, Beacon).join(Beacon.venue)
_GEOFENCE = columns_of(GeofenceAnswer, Geofence).join(Geofence.venue)


async def venues(session: AsyncSession, where: Where, page: Page) -> list[Record]:
    """Venues, in one query."""
    return await fetch(session, VenueAnswer, _VENUE, Venue.id, where, page)


async def beacons(
    session: AsyncSession, where: Where, page: Page, *, deleted: bool = False
) -> list[Record]:
    """Beacons of venues with their tags, in two queries. `where` may use columns of both tables.

    `deleted` includes deleted beacons, because a trace may name one.
    """
    columns = with_deleted(_BEACON) if deleted else _BEACON
    found = await fetch(session, BeaconAnswer, columns, Beacon.id, where, page)
    await add_tags(session, found)
    return found


async def add_tags(session: AsyncSession, beacons: list[Record]) -> None:
    """Add to beacons the tags that they carry, in one query."""
    fill_texts(beacons, BeaconAnswer)
    tags: dict[int, list[Record]] = {record["id"]: [] for record in beacons}
    if beacons:
        query = (
            select(beacon_tag.c.beacon_id, Tag.id, Tag.name)
            .join_from(beacon_tag, Tag)
            .where(beacon_tag.c.beacon_id.in_(tags))
            .order_by(Tag.id)
        )
        for beacon_id, tag_id, name in await session.execute(query):
            tags[beacon_id].append({"id": tag_id, "name": name})
    for record in beacons:
        record["tags"] = tags[record["id"]]


async def geofences(session: AsyncSession, where: Where, page: Page) -> list[Record]:
    """Geofences of venues, in one query. `where` may use columns of both tables."""
    return await fetch(session, GeofenceAnswer, _GEOFENCE, Geofence.id, where, page)
