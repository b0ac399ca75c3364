"""The catalog of these tests: beacons whose detections count, and some whose do not."""

from datetime import UTC, datetime
from typing import NamedTuple

from catalog.database import open_database
from catalog.models import Application, Beacon, Campaign, Company, Device, Venue
from tests.servers.schema import make_schema

UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEST_DEVICES = 20
_BEACONS = 12  # a venue


class Spot(NamedTuple):
    """A beacon: the ids of its records, and whether its detections count."""

    minor: int
    beacon: int
    venue: int
    company: int
    campaign: int
    time_zone: str | None
    counts: bool


class Estate(NamedTuple):
    """The catalog with its ids. `keys` are api keys of applications, by company."""

    spots: list[Spot]
    keys: dict[str, int]


async def build_estate(url: str) -> Estate:
    """Migrate the database and write two companies with three venues, one of them closed."""
    await make_schema(url)
    database = open_database(url)
    companies = [Company(name=name, create_on=NOW) for name in ("alpha", "beta")]
    venues = [
        Venue(company=company, name=name, address="-", active=active, time_zone=zone)
        for company, name, active, zone in (
            (companies[0], "Hall", True, "America/Los_Angeles"),
            (companies[0], "Closed", False, None),
            (companies[1], "Pier", True, None),
        )
    ]
    beacons = [
        _beacon(venue, minor=1 + place * _BEACONS + number, active=number > 0)
        for place, venue in enumerate(venues)
        for number in range(_BEACONS)
    ]
    campaigns = [_campaign(venue) for venue in venues]
    keys = [
        Application(company=each, name="app", type="ios", api_key=f"key-{each.name}")
        for each in companies
    ]
    devices = [
        Device(company=each, udid=f"phone {n}", test=True, create_on=NOW, update_on=NOW)
        for each in companies
        for n in range(TEST_DEVICES)
    ]
    try:
        async with database.write.begin() as session:
            session.add_all([*beacons, *campaigns, *keys, *devices])
    finally:
        await database.close()
    by_venue = {campaign.venue: campaign.id for campaign in campaigns}
    spots = [
        Spot(
            minor=each.minor,
            beacon=each.id,
            venue=each.venue.id,
            company=each.venue.company.id,
            campaign=by_venue[each.venue],
            time_zone=each.venue.time_zone,
            counts=each.active and each.venue.active,
        )
        for each in beacons
    ]
    return Estate(spots, {each.api_key: each.company.id for each in keys})


def _beacon(venue: Venue, *, minor: int, active: bool) -> Beacon:
    return Beacon(
        venue=venue,
        name=f"beacon {minor}",
        uuid=UUID,
        major=1,
        minor=minor,
        active=active,
        proximity="far",
    )


def _campaign(venue: Venue) -> Campaign:
    return Campaign(
        venue=venue,
        name=f"for {venue.name}",
        push="-",
        title="-",
        format="html",
        html="-",
        cache="none",
        delay=0,
        start=NOW,
        end=NOW.replace(year=2030),
        start_minute=0,
        end_minute=1440,
        active=True,
    )
