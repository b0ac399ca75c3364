"""The catalog of a workload: beacons, a thousand in a venue, each with campaigns of its own."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import selectinload

from catalog.database import open_database
from catalog.migrate import migrate
from catalog.models import Beacon, Campaign, Company, Venue, campaign_beacon

UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"
BEACONS = 1000
DELAY = 86_400
_CHUNK = 5000
# Why a campaign is closed, in turn: it has ended, has not begun, is switched off, or it is not its
# hour.
_CLOSED = ("ended", "not begun", "inactive", "another hour")


class CatalogShape(NamedTuple):
    """How many beacons, and how many open and closed campaigns each of them has."""

    campaigns: int
    beacons: int = BEACONS
    closed: int = 0


def place_of(number: int) -> tuple[int, int]:
    """Major and minor of a beacon. A venue has one major."""
    return 1 + number // BEACONS, number % BEACONS


def number_of(major: int, minor: int) -> int:
    """The number of the beacon with this major and minor."""
    return (major - 1) * BEACONS + minor


async def make_catalog(url: str, shape: CatalogShape) -> None:
    """A migrated database with such a catalog."""
    await migrate(url)
    database = open_database(url, command_timeout=600.0)
    try:
        async with database.write() as session, session.begin():
            company = Company(
                name="Benchmark", image="", description="", active=True, create_on=datetime.now(UTC)
            )
            session.add(company)
        # Past the outbox: nobody has read the catalog yet.
        async with database.engine.begin() as connection:
            await _fill(connection, Venue.__table__, _venues(shape))
            await _fill(connection, Beacon.__table__, map(_beacon, range(shape.beacons)))
            await _fill(connection, Campaign.__table__, _campaigns(shape))
            await _fill(connection, campaign_beacon, _targets(shape))
    finally:
        await database.close()


async def _fill(connection: AsyncConnection, table: Any, rows: Iterator[dict[str, Any]]) -> None:
    while chunk := list(islice(rows, _CHUNK)):
        await connection.execute(insert(table), chunk)


def _venues(shape: CatalogShape) -> Iterator[dict[str, Any]]:
    for number in range(-(-shape.beacons // BEACONS)):
        yield {
            "id": number + 1,
            "company_id": 1,
            "name": f"Mall {number}",
            "address": "1 Main Street",
            "active": True,
        }


def _beacon(number: int) -> dict[str, Any]:
    major, minor = place_of(number)
    return {
        "id": number + 1,
        "venue_id": major,
        "name": f"Shop {number}",
        "uuid": UUID,
        "major": major,
        "minor": minor,
        "active": True,
        "proximity": "far",
    }


def _campaigns(shape: CatalogShape) -> Iterator[dict[str, Any]]:
    each = shape.campaigns + shape.closed
    for number in range(shape.beacons * each):
        beacon, place = divmod(number, each)
        closed = place - shape.campaigns
        yield _campaign(number, beacon, _CLOSED[closed % len(_CLOSED)] if closed >= 0 else "")


def _targets(shape: CatalogShape) -> Iterator[dict[str, Any]]:
    each = shape.campaigns + shape.closed
    for number in range(shape.beacons * each):
        yield {"campaign_id": number + 1, "beacon_id": number // each + 1}


def _campaign(number: int, beacon: int, closed: str) -> dict[str, Any]:
    now, day = datetime.now(UTC), timedelta(days=1)
    start, end = now - day, now + 30 * day
    if closed == "ended":
        start, end = start - 30 * day, start
    elif closed == "not begun":
        start = end - day
    # An hour that begins in twelve hours.
    hour = (now.hour + 12) % 24 * 60
    opened = (hour, hour + 60) if closed == "another hour" else (0, 1440)
    return {
        "id": number + 1,
        "venue_id": place_of(beacon)[0],
        "name": f"Offer {number} of Shop {beacon}",
        "title": "Welcome",
        "push": "An offer for you, today only",
        "format": "url",
        "url": "https://example.org/offers",
        "cache": "day",
        "delay": DELAY,
        "start_at": start,
        "start_offset": 0,
        "end_at": end,
        "end_offset": 0,
        "start_minute": opened[0],
        "end_minute": opened[1],
        "active": closed != "inactive",
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
