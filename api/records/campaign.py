"""Campaigns, with all that they are tied to."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from api.answers import time_of_day, timestamp
from api.records.page import Page, Record, fetch, with_texts
from api.records.venue import with_tags
from catalog.models import (
    WEEKDAYS,
    Beacon,
    Campaign,
    Geofence,
    Tag,
    campaign_beacon,
    campaign_geofence,
    campaign_tag,
)
from catalog.models.base import at_offset

_CAMPAIGN = select(
    Campaign.id,
    Campaign.name,
    Campaign.hash,
    Campaign.push,
    Campaign.title,
    Campaign.format,
    Campaign.template,
    Campaign.url,
    Campaign.html,
    Campaign.background,
    Campaign.color,
    Campaign.cache,
    Campaign.start_at,
    Campaign.start_offset,
    Campaign.end_at,
    Campaign.end_offset,
    Campaign.start_minute,
    Campaign.end_minute,
    Campaign.active,
    Campaign.weekdays,
    Campaign.nfcs,
    Campaign.qrcodes,
).join(Campaign.venue)
_BEACON = select(
    campaign_beacon.c.campaign_id,
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
).join_from(campaign_beacon, Beacon)
_GEOFENCE = select(
    campaign_geofence.c.campaign_id,
    Geofence.id,
    Geofence.name,
    Geofence.longitude,
    Geofence.latitude,
    Geofence.radius,
    Geofence.active,
).join_from(campaign_geofence, Geofence)
_TAG = select(campaign_tag.c.campaign_id, Tag.id, Tag.name).join_from(campaign_tag, Tag)

_Tied = dict[int, list[Record]]


async def campaigns(
    session: AsyncSession, where: Sequence[ColumnElement[bool]], page: Page
) -> list[Record]:
    """Campaigns of venues: five queries, however many. `where` may speak of both tables."""
    rows = await fetch(session, _CAMPAIGN, Campaign.id, where, page)
    with_texts(rows, _OPTIONAL)
    ids = [row["id"] for row in rows]
    if not ids:
        return []
    beacons = await _tied(session, _BEACON, campaign_beacon, Beacon.id, ids)
    await with_tags(session, [beacon for tied in beacons.values() for beacon in tied])
    geofences = await _tied(session, _GEOFENCE, campaign_geofence, Geofence.id, ids)
    tags = await _tied(session, _TAG, campaign_tag, Tag.id, ids)
    return [
        _told(row)
        | {
            "beacons": beacons[row["id"]],
            "geofencings": geofences[row["id"]],
            "nfcs": row["nfcs"],
            "qrcodes": row["qrcodes"],
            "tags": tags[row["id"]],
        }
        for row in rows
    ]


async def _tied(
    session: AsyncSession,
    columns: Select[*tuple[Any, ...]],
    table: Table,
    order: InstrumentedAttribute[int],
    ids: Iterable[int],
) -> _Tied:
    found: _Tied = {number: [] for number in ids}
    query = columns.where(table.c.campaign_id.in_(found)).order_by(order)
    for row in (await session.execute(query)).mappings():
        record = dict(row)
        found[record.pop("campaign_id")].append(record)
    return found


def _told(row: Record) -> Record:
    mask = row["weekdays"]
    return {
        **{name: row[name] for name in _AS_KEPT},
        "start": timestamp(at_offset(row["start_at"], row["start_offset"])),
        "end": timestamp(at_offset(row["end_at"], row["end_offset"])),
        "start_time": time_of_day(row["start_minute"]),
        "end_time": time_of_day(row["end_minute"]),
        "active": row["active"],
        **{day: bool(mask >> bit & 1) for bit, day in enumerate(WEEKDAYS)},
    }


_OPTIONAL = ("hash", "template", "url", "html", "background", "color")
_AS_KEPT = (
    "id",
    "name",
    "hash",
    "push",
    "title",
    "format",
    "template",
    "url",
    "html",
    "background",
    "color",
    "cache",
)
