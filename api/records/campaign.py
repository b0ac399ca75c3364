"""Campaigns, with the records that they refer to."""

from typing import Any, Literal

from sqlalchemy import Table, bindparam, select
from sqlalchemy.orm import InstrumentedAttribute

from api.answers import Answer, Id, Record, TimeOfDay, Timestamp, time_of_day, timestamp
from api.records.page import Columns, RecordKind, columns_of
from api.records.venue import BeaconAnswer, GeofenceAnswer, TagAnswer, add_tags
from catalog.models import (
    WEEKDAYS,
    Beacon,
    Campaign,
    Geofence,
    Tag,
    Venue,
    campaign_beacon,
    campaign_geofence,
    campaign_tag,
)
from catalog.models.base import at_offset
from catalog.reading import Reader, Reading


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


def _referred(columns: Columns, link: Table, order: InstrumentedAttribute[int]) -> Reading:
    """The referenced records of a kind, with the campaign of each."""
    of_campaigns = link.c.campaign_id.in_(bindparam("campaigns", expanding=True))
    return Reading(columns.join_from(link, order.class_).where(of_campaigns).order_by(order))


_BEACONS = _referred(
    columns_of(BeaconAnswer, Beacon, campaign_beacon.c.campaign_id), campaign_beacon, Beacon.id
)
_GEOFENCES = _referred(
    columns_of(GeofenceAnswer, Geofence, campaign_geofence.c.campaign_id),
    campaign_geofence,
    Geofence.id,
)
_TAGS = _referred(select(campaign_tag.c.campaign_id, Tag.id, Tag.name), campaign_tag, Tag.id)


def _completed(reader: Reader, rows: list[Record]) -> list[Record]:
    """The campaigns with what they refer to: four queries for any number."""
    ids = [row["id"] for row in rows]
    if not ids:
        return []
    beacons = _by_campaign(reader, _BEACONS, ids)
    add_tags(reader, [beacon for listed in beacons.values() for beacon in listed])
    geofences = _by_campaign(reader, _GEOFENCES, ids)
    tags = _by_campaign(reader, _TAGS, ids)
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


def _by_campaign(reader: Reader, reading: Reading, ids: list[int]) -> dict[int, list[Record]]:
    found: dict[int, list[Record]] = {number: [] for number in ids}
    for record in reader.rows(reading, campaigns=ids):
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


CAMPAIGNS = RecordKind(
    "campaign",
    CampaignAnswer,
    _CAMPAIGN,
    key=Campaign.id,
    company=Venue.company_id,
    venue=Campaign.venue_id,
    complete=_completed,
)
