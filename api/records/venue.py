"""Venues, beacons and geofences."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncSession

from api.records.page import Page, Record, fetch, with_texts
from catalog.models import Beacon, Geofence, Tag, Venue, beacon_tag
from catalog.soft_deletion import with_deleted

_VENUE = select(
    Venue.id,
    Venue.name,
    Venue.address,
    Venue.active,
    Venue.width,
    Venue.height,
    Venue.image,
    Venue.time_zone,
)
_BEACON = select(
    Beacon.id,
    Beacon.name,
    Beacon.uuid,
    Beacon.major,
    Beacon.minor,
    Beacon.active,
    Beacon.proximity,
    Beacon.x,
    Beacon.y,
    Beacon.color,
).join(Beacon.venue)
_GEOFENCE = select(
    Geofence.id,
    Geofence.name,
    Geofence.longitude,
    Geofence.latitude,
    Geofence.radius,
    Geofence.active,
).join(Geofence.venue)


async def venues(
    session: AsyncSession, where: Sequence[ColumnElement[bool]], page: Page
) -> list[Record]:
    """Venues: one query."""
    found = await fetch(session, _VENUE, Venue.id, where, page)
    return with_texts(found, ("image", "time_zone"))


async def beacons(
    session: AsyncSession,
    where: Sequence[ColumnElement[bool]],
    page: Page,
    *,
    deleted: bool = False,
) -> list[Record]:
    """Beacons of venues, with their tags: two queries. `where` may speak of both tables.

    `deleted` ones are told too, where the past is told.
    """
    columns = with_deleted(_BEACON) if deleted else _BEACON
    found = await fetch(session, columns, Beacon.id, where, page)
    return await with_tags(session, found)


async def with_tags(session: AsyncSession, found: list[Record]) -> list[Record]:
    """Beacons with all that they show, and what they carry: one query."""
    with_texts(found, ("color",))
    tags: dict[int, list[Record]] = {record["id"]: [] for record in found}
    if found:
        query = (
            select(beacon_tag.c.beacon_id, Tag.id, Tag.name)
            .join_from(beacon_tag, Tag)
            .where(beacon_tag.c.beacon_id.in_(tags))
            .order_by(Tag.id)
        )
        for beacon_id, tag_id, name in await session.execute(query):
            tags[beacon_id].append({"id": tag_id, "name": name})
    for record in found:
        record["tags"] = tags[record["id"]]
    return found


async def geofences(
    session: AsyncSession, where: Sequence[ColumnElement[bool]], page: Page
) -> list[Record]:
    """Geofences of venues: one query. `where` may speak of both tables."""
    return await fetch(session, _GEOFENCE, Geofence.id, where, page)
