"""Campaigns, with the records that they refer to."""

from collections.abc import Iterable
from typing import Any, Literal

from sqlalchemy import Select, Table, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from api.answers import Answer, Id, Record, TimeOfDay, Timestamp, time_of_day, timestamp
from api.records.page import Page, Where, columns_of, fetch
from api.records.venue import BeaconAnswer, GeofenceAnswer, TagAnswer, add_tags
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


class CampaignAnswer(Answer):
    id: Id
    name: str
    hash: str
    push: str
    title: str
    format: Literal["template", "url", "html", "connector"]
    template: str
    url: str
    html: str
    background: str
    color: str
    cache: str
    start: Timestamp
    end: Timestamp
    start_time: TimeOfDay
    end_time: TimeOfDay
    active: bool
    monday: bool
    tuesday: bool
    wednesday: bool
    thursday: bool
    friday: bool
    saturday: bool
    sunday: bool
    beacons: list[BeaconAnswer]
    geofencings: list[GeofenceAnswer]
    nfcs: list[Any]
    qrcodes: list[Any]
    tags: list[TagAnswer]


_CAMPAIGN = columns_of(
    CampaignAnswer,
    Campaign,
    Campaign.start_at,
    Campaign.start_offset,
    Campaign.end_at,
    Campaign.end_offset,
    Campaign.start_minute,
    Campaign.end_minute,
    Campaign.weekdays,
).join(Campaign.venue)
_BEACON = columns_of(BeaconAnswer, Beacon, campaign_beacon.c.campaign_id)
_GEOFENCE = columns_of(GeofenceAnswer, Geofence, campaign_geofence.c.campaign_id)
_TAG = select(campaign_tag.c.campaign_id, Tag.id, Tag.name)


async def campaigns(session: AsyncSession, where: Where, page: Page) -> list[Record]:
    """Campaigns of venues: five queries for any number. `where` may use columns of both tables."""
    rows = await fetch(session, CampaignAnswer, _CAMPAIGN, Campaign.id, where, page)
    ids = [row["id"] for row in rows]
    if not ids:
        return []
    beacons = await _referred(session, _BEACON, campaign_beacon, Beacon.id, ids)
    await add_tags(session, [beacon for listed in beacons.values() for beacon in listed])
    geofences = await _referred(session, _GEOFENCE, campaign_geofence, Geofence.id, ids)
    tags = await _referred(session, _TAG, campaign_tag, Tag.id, ids)
    return [
        _record(
            row
            | {
                "beacons": beacons[row["id"]],
                "geofencings": geofences[row["id"]],
                "tags": tags[row["id"]],
            }
        )
        for row in rows
    ]


async def _referred(
    session: AsyncSession,
    columns: Select[*tuple[Any, ...]],
    table: Table,
    order: InstrumentedAttribute[int],
    ids: Iterable[int],
) -> dict[int, list[Record]]:
    """The referenced records of a kind, by campaign."""
    found: dict[int, list[Record]] = {number: [] for number in ids}
    query = columns.join_from(table, order.class_)
    query = query.where(table.c.campaign_id.in_(found)).order_by(order)
    for row in (await session.execute(query)).mappings():
        record = dict(row)
        found[record.pop("campaign_id")].append(record)
    return found


def _record(row: Record) -> Record:
    mask = row["weekdays"]
    complete = {
        **row,
        "start": timestamp(at_offset(row["start_at"], row["start_offset"])),
        "end": timestamp(at_offset(row["end_at"], row["end_offset"])),
        "start_time": time_of_day(row["start_minute"]),
        "end_time": time_of_day(row["end_minute"]),
        **{day: bool(mask >> bit & 1) for bit, day in enumerate(WEEKDAYS)},
    }
    return {name: complete[name] for name in CampaignAnswer.model_fields}
