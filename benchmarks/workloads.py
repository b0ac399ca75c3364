"""What the devices do, and the catalog they do it in."""

import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from catalog.database import open_database
from catalog.migrate import migrate
from catalog.models import Beacon, Campaign, Company, Venue
from engine.kafka.timestamps import format_instant

UUID = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"
BEACONS = 1000
_SEED = 20261120


@dataclass(frozen=True)
class Workload:
    """`devices` at `BEACONS` beacons of `campaigns` each; `moving` ones change beacon each time."""

    name: str
    meaning: str
    devices: int
    campaigns: int

    def records(self, count: int) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of `count` detections, detected now, in an order that repeats."""
        draw = random.Random(_SEED)
        detected_at = format_instant(time.time())
        for number in range(count):
            device = (
                number % self.devices if self.devices >= count else draw.randrange(self.devices)
            )
            udid = f"device-{device:08d}"
            detection = {
                "uuid": UUID,
                "major": 1,
                "minor": device % BEACONS,
                "proximity": "near",
                "device": {"udid": udid, "name": "android", "version": "14", "model": "Pixel 8"},
                "detected_at": detected_at,
            }
            yield udid.encode(), json.dumps(detection).encode()


def workloads(count: int) -> list[Workload]:
    """The workloads for `count` detections."""
    return [
        Workload("dwell", "devices stay at a beacon; 1% of detections grant", count // 100, 2),
        Workload("sweep", "a new device each time; every detection grants", count, 1),
    ]


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
        delay=86_400,
        start_minute=0,
        end_minute=1440,
        active=True,
        beacons=[beacon],
        geofencings=[],
        tags=[],
    )
    campaign.start, campaign.end = now - timedelta(days=1), now + timedelta(days=30)
    return campaign
