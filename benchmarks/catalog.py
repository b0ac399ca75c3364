"""The catalog of a workload: a venue with beacons, each with campaigns of its own."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import selectinload

from catalog.database import open_database
from catalog.migrate import migrate
from catalog.models import (
    Application,
    Beacon,
    Campaign,
    Company,
    Geofence,
    ScanTag,
    Venue,
    campaign_beacon,
    campaign_geofence,
    campaign_scan_tag,
)

UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"
BEACONS = 1000
PLACES = ("beacon", "geofence", "position", "nfc")  # kinds of detections
API_KEY = "benchmark"
DELAY = 86_400
_CHUNK = 5000


def place_of(number: int) -> tuple[int, int]:
    """Major and minor of a beacon."""
    return 1, number


def centre_of(number: int) -> tuple[float, float]:
    """Latitude and longitude of a geofence."""
    return 40 + number // 100 / 50, 2 + number % 100 / 50


async def make_catalog(
    url: str, campaigns: int, kind: str = "beacon", *, capped: bool = False
) -> None:
    """A migrated database with BEACONS beacons, or places of another kind, of so many campaigns
    each; with `capped` under three caps, which let everything pass."""
    table, link, column, place = {
        "beacon": (Beacon, campaign_beacon, "beacon_id", _beacon),
        "geofence": (Geofence, campaign_geofence, "geofence_id", _geofence),
        "position": (Geofence, campaign_geofence, "geofence_id", _geofence),
        "nfc": (ScanTag, campaign_scan_tag, "scan_tag_id", _tag),
    }[kind]
    await migrate(url)
    database = open_database(url, command_timeout=600.0)
    try:
        async with database.write() as session, session.begin():
            caps = [{"max": 1000, "per": each} for each in ("hour", "day", "week")]
            company = Company(name="Benchmark", create_on=datetime.now(UTC))
            company.caps = caps if capped else []
            session.add(company)
            session.add(Application(company=company, name="App", type="ios", api_key=API_KEY))
        # Past the outbox: nobody has read the catalog yet.
        async with database.engine.begin() as connection:
            rows = range(BEACONS * campaigns)
            await _fill(connection, Venue.__table__, [_VENUE])
            await _fill(connection, table.__table__, map(place, range(BEACONS)))
            await _fill(connection, Campaign.__table__, (_campaign(n, campaigns) for n in rows))
            await _fill(
                connection,
                link,
                ({"campaign_id": n + 1, column: n // campaigns + 1} for n in rows),
            )
    finally:
        await database.close()


async def _fill(connection: AsyncConnection, table: Any, rows: Iterable[dict[str, Any]]) -> None:
    left = iter(rows)
    while chunk := list(islice(left, _CHUNK)):
        await connection.execute(insert(table), chunk)


_VENUE = {
    "id": 1,
    "company_id": 1,
    "name": "Mall",
    "address": "1 Main Street",
    "active": True,
}


def _beacon(number: int) -> dict[str, Any]:
    major, minor = place_of(number)
    return {
        "id": number + 1,
        "venue_id": 1,
        "name": f"Shop {number}",
        "uuid": UUID,
        "major": major,
        "minor": minor,
        "active": True,
        "proximity": "far",
    }


def _geofence(number: int) -> dict[str, Any]:
    latitude, longitude = centre_of(number)
    where = {"latitude": latitude, "longitude": longitude, "radius": 100}
    return {"id": number + 1, "venue_id": 1, "name": f"Shop {number}", "active": True, **where}


def _tag(number: int) -> dict[str, Any]:
    what = {"kind": "nfc", "value": f"tag {number}", "company_id": 1, "venue_id": 1}
    return {"id": number + 1, "name": f"Shop {number}", "active": True, **what}


def _campaign(number: int, each: int) -> dict[str, Any]:
    now, day = datetime.now(UTC), timedelta(days=1)
    return {
        "id": number + 1,
        "venue_id": 1,
        "name": f"Offer {number} of Shop {number // each}",
        "title": "Welcome",
        "push": "An offer for you, today only",
        "format": "url",
        "url": "https://example.org/offers",
        "cache": "day",
        "delay": DELAY,
        "start_at": now - day,
        "start_offset": 0,
        "end_at": now + 29 * day,
        "end_offset": 0,
        "start_minute": 0,
        "end_minute": 1440,
        "active": True,
    }


async def exported(url: str) -> list[dict[str, Any]]:
    """The campaigns as plain data, for programs other than the product."""
    database = open_database(url)
    try:
        async with database.read() as session:
            venues = {venue.id: venue for venue in await session.scalars(select(Venue))}
            requested = select(Campaign).options(selectinload(Campaign.beacons))
            return list(_plain(venues, (await session.scalars(requested)).all()))
    finally:
        await database.close()


def _plain(venues: dict[int, Venue], campaigns: Sequence[Campaign]) -> Iterator[dict[str, Any]]:
    for campaign in campaigns:
        for beacon in campaign.beacons:
            yield {
                "uuid": beacon.uuid,
                "major": beacon.major,
                "minor": beacon.minor,
                "delay": campaign.delay,
                "start": campaign.start.timestamp(),
                "end": campaign.end.timestamp(),
                "fields": _fields(venues[campaign.venue_id], beacon, campaign),
            }


def _fields(venue: Venue, beacon: Beacon, campaign: Campaign) -> dict[str, Any]:
    """The fields that are the same in every notification of the campaign."""
    return {
        "campaign": {"id": campaign.id, "name": campaign.name, "hash": campaign.hash},
        "company": {"id": venue.company_id},
        "venue": {"id": venue.id, "name": venue.name},
        "beacon": {
            "id": beacon.id,
            "name": beacon.name,
            "uuid": beacon.uuid,
            "major": beacon.major,
            "minor": beacon.minor,
        },
        "title": campaign.title,
        "push": campaign.push,
        "background": campaign.background,
        "color": campaign.color,
        "format": campaign.format,
        campaign.format: campaign.url,
    }
