"""The catalog of these tests: beacons whose detections count, and some whose do not."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

from catalog.models import Beacon, Device, ScanTag
from tests.catalog.records import Records
from tests.servers.schema import migrated
from tests.system.world import kind_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEST_DEVICES = 20
_BEACONS = 12  # a venue
TAGS = ("nfc", "qrcode")


class Spot(NamedTuple):
    """A place: the ids of its records, and whether its detections count.

    `signal` has the fields of a detection there that name it.
    """

    kind: str
    signal: dict[str, Any]
    id: int
    venue: int
    company: int
    campaign: int
    time_zone: str | None
    counts: bool


def _signals(place: Any) -> list[dict[str, Any]]:
    """What names the place; a geofence is reported by the phone, or contains a position."""
    key = {"api_key": f"key-{place.venue.company.name}"}
    if isinstance(place, Beacon):
        return [{"uuid": place.uuid, "major": place.major, "minor": place.minor}]
    if isinstance(place, ScanTag):
        return [{"tag": {"kind": place.kind, "value": place.value}, **key}]
    position = {"latitude": place.latitude, "longitude": place.longitude, "accuracy": 90}
    return [
        {"geofence": {"id": place.id, "transition": "dwell"}},
        {"position": position, **key},
    ]


class Estate(NamedTuple):
    """The catalog with its ids. `keys` are api keys of applications, by company."""

    spots: list[Spot]
    keys: dict[str, int]


async def build_estate(url: str) -> Estate:
    """Migrate the database and write two companies with three venues, one of them closed.

    Each has beacons, and a few geofences, NFC tags and QR codes.
    """
    records = Records()
    companies = alpha, beta = records.company(), records.company()
    venues = [
        records.venue(alpha, time_zone="America/Los_Angeles"),
        records.venue(alpha, active=False),
        records.venue(beta),
    ]
    beacons = [
        records.beacon(venue, minor=1 + place * _BEACONS + number, active=number > 0)
        for place, venue in enumerate(venues)
        for number in range(_BEACONS)
    ]
    campaigns = [records.campaign(venue) for venue in venues]
    keys = [records.application(each, api_key=f"key-{each.name}") for each in companies]
    devices = [
        Device(company=each, udid=f"phone {n}", test=True, create_on=NOW, update_on=NOW)
        for each in companies
        for n in range(TEST_DEVICES)
    ]
    others: list[Any] = []
    for place, venue in enumerate(venues):
        for number in range(3):
            circle = {"latitude": 10.0 * place, "longitude": 10.0 * number, "active": number > 0}
            others.append(records.geofence(venue, **circle))
        tags = (records.scan_tag(venue, kind, active=on) for kind in TAGS for on in (True, False))
        others += tags
    async with migrated(url) as database, database.write.begin() as session:
        session.add_all([*beacons, *others, *campaigns, *keys, *devices])
    by_venue = {campaign.venue: campaign.id for campaign in campaigns}
    spots = [
        Spot(
            kind=kind_of(each),
            signal=signal,
            id=each.id,
            venue=each.venue.id,
            company=each.venue.company.id,
            campaign=by_venue[each.venue],
            time_zone=each.venue.time_zone,
            counts=each.active and each.venue.active,
        )
        for each in [*beacons, *others]
        for signal in _signals(each)
    ]
    return Estate(spots, {each.api_key: each.company.id for each in keys})
