"""The catalog of the installation: a hall with campaigns of the engine's own content, one campaign
that is edited, and a partner whose web service is called."""

import json
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from catalog.accounts import NewAccount, create_account
from catalog.database import open_database
from catalog.fields.company import ALL_PERMISSIONS
from catalog.models import Connector, Venue
from catalog.secrets import open_cipher
from tests.acceptance.world import Triple, World

SECRET_KEY = "a passphrase of the benchmark"  # noqa: S105
EMAIL, PASSWORD = "owner@hall.example", "change-me-please"
HALL, PARTNER = "hall", "partner"
_BEACONS, _PARTNERS_BEACONS = 20, 4
_DAY = 86_400


class Estate(NamedTuple):
    """The beacons to detect, and the ids of records.

    `plain` campaigns fire at every detection of the hall, `requested` ones at every detection of
    the partner's beacons, `edited` only at the first beacon of the hall.
    """

    hall: list[Triple]
    partners: list[Triple]
    plain: frozenset[int]
    requested: frozenset[int]
    edited: int
    venue: int


async def build_estate(database_url: str, service_url: str) -> Estate:
    """Migrate the database and write the catalog."""
    world = World(datetime.now(UTC).replace(microsecond=0))
    venue = world.venue(world.company(HALL), "Hall")
    beacons = [world.beacon(venue, number) for number in range(_BEACONS)]
    plain = [world.campaign(venue, f"plain {beacon.record.name}", [beacon]) for beacon in beacons]
    for beacon in beacons:
        world.campaign(venue, f"seldom {beacon.record.name}", [beacon], delay=_DAY)
    edited = world.campaign(venue, "edited", beacons[:1], title="edit 0")
    partners_venue, connector = _partner(world, service_url)
    partners = [world.beacon(partners_venue, 1000 + number) for number in range(_PARTNERS_BEACONS)]
    fields = {"format": "connector", "template": None}
    requested = [
        world.campaign(partners_venue, f"asked {each.record.name}", [each], **fields)
        for each in partners
    ]
    world.records.append(connector)
    await world.save(database_url)
    await _make_account(database_url)
    return Estate(
        hall=[beacon.triple for beacon in beacons],
        partners=[beacon.triple for beacon in partners],
        plain=frozenset(each.record.id for each in plain),
        requested=frozenset(each.record.id for each in requested),
        edited=edited.record.id,
        venue=venue.id,
    )


def campaign_edit(title: str) -> dict[str, object]:
    """The body of an edit of the edited campaign."""
    now = datetime.now(UTC)
    begin, end = now - timedelta(days=30), now + timedelta(days=30)
    days = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    return {
        "name": "edited",
        "title": title,
        "push": title,
        "format": "template",
        "template": "<p>edited</p>",
        "cache": "none",
        "start": f"{begin:%Y-%m-%dT%H:%M:%S+0000}",
        "end": f"{end:%Y-%m-%dT%H:%M:%S+0000}",
        "start_time": "00:00",
        "end_time": "24:00",
        "active": True,
        **dict.fromkeys(days, True),
    }


def _partner(world: World, service_url: str) -> tuple[Venue, Connector]:
    company = world.company(PARTNER)
    parameters = open_cipher(SECRET_KEY).encrypt(json.dumps([{"key": "x-token", "value": "t"}]))
    connector = Connector(
        company=company,
        name="the partner's",
        url=service_url,
        method="POST",
        auth="header",
        parameters=parameters,
        secret=None,
    )
    return world.venue(company, "Pier"), connector


async def _make_account(database_url: str) -> None:
    database = open_database(database_url)
    try:
        new = NewAccount(company=HALL, email=EMAIL, password=PASSWORD, permission=ALL_PERMISSIONS)
        await create_account(database, new, create_company=False, now=datetime.now(UTC))
    finally:
        await database.close()
