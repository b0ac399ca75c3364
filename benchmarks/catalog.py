"""The catalog of the workloads: one venue, BEACONS beacons, and campaigns that are always open."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import selectinload

from catalog.database import open_database
from catalog.migrate import migrate
from catalog.models import Beacon, Campaign, Company, Venue

UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"
BEACONS = 1000
DELAY = 86_400


async def make_catalog(url: str, campaigns: int) -> None:
    """A migrated database with one venue, BEACONS beacons and `campaigns` campaigns each."""
    await migrate(url)
    database = open_database(url)
    try:
        async with database.write() as session, session.begin():
            company = Company(
                name="Benchmark", image="", description="", active=True, create_on=datetime.now(UTC)
            )
            session.add(company)
            await session.flush()
            venue = Venue(company_id=company.id, name="Mall", address="1 Main Street", active=True)
            session.add(venue)
            await session.flush()
            for minor in range(BEACONS):
                beacon = _beacon(venue, minor)
                session.add(beacon)
                session.add_all(_campaign(venue, beacon, number) for number in range(campaigns))
    finally:
        await database.close()


async def exported(url: str) -> list[dict[str, Any]]:
    """The same catalog as plain data, for programs that know nothing of the product."""
    database = open_database(url)
    try:
        async with database.read() as session:
            venue = (await session.scalars(select(Venue))).one()
            campaigns = (
                await session.scalars(select(Campaign).options(selectinload(Campaign.beacons)))
            ).all()
            return [
                {
                    "uuid": beacon.uuid,
                    "major": beacon.major,
                    "minor": beacon.minor,
                    "delay": campaign.delay,
                    "start": campaign.start.timestamp(),
                    "end": campaign.end.timestamp(),
                    "fields": _fields(venue, beacon, campaign),
                }
                for campaign in campaigns
                for beacon in campaign.beacons
            ]
    finally:
        await database.close()


def _fields(venue: Venue, beacon: Beacon, campaign: Campaign) -> dict[str, Any]:
    """What every notification of the campaign says."""
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


def _beacon(venue: Venue, minor: int) -> Beacon:
    return Beacon(
        venue_id=venue.id,
        name=f"Shop {minor}",
        uuid=UUID,
        major=1,
        minor=minor,
        active=True,
        proximity="far",
        tags=[],
    )


def _campaign(venue: Venue, beacon: Beacon, number: int) -> Campaign:
    now = datetime.now(UTC)
    campaign = Campaign(
        venue_id=venue.id,
        name=f"Offer {number} of {beacon.name}",
        title="Welcome",
        push="An offer for you, today only",
        format="url",
        url="https://example.org/offers",
        cache="day",
        delay=DELAY,
        start_minute=0,
        end_minute=1440,
        active=True,
        beacons=[beacon],
        geofencings=[],
        tags=[],
    )
    campaign.start, campaign.end = now - timedelta(days=1), now + timedelta(days=30)
    return campaign
