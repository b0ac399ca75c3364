"""A catalog for acceptance tests, as the records that are written to SQL.

What they mean says the oracle, which reads them from here.
"""

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, TypeAlias

from catalog.models import (
    Application,
    Beacon,
    Campaign,
    Company,
    Connector,
    Geofence,
    ScanTag,
    Venue,
)
from tests.catalog.records import Records
from tests.servers.schema import migrated

UUIDS = ("f7826da6-4fa2-4e98-8024-bc5b71e0893e", "e2c56db5-dffb-48d2-b060-d0f5a71096e0")
ZONES = ("Europe/Paris", "Asia/Kolkata", "America/St_Johns", None)
REQUESTED = {"format": "connector", "template": None}

Place: TypeAlias = Beacon | Geofence | ScanTag


def kind_of(place: Place) -> str:
    """beacon, geofence, nfc or qrcode."""
    if isinstance(place, ScanTag):
        return place.kind
    return "beacon" if isinstance(place, Beacon) else "geofence"


class World(Records):
    """Everything that was planned; `save` writes it to SQL. Its time is a whole second."""

    def __init__(self) -> None:
        super().__init__()
        self.now = datetime.now(UTC).replace(microsecond=0)
        self.beacons: list[Beacon] = []
        self.places: list[Geofence | ScanTag] = []
        self.campaigns: list[Campaign] = []
        self.keys: dict[str, Company] = {}  # of applications that may send
        self.bad_keys = ["nobody's", "é" * 200]
        self.connectors: dict[str, Connector] = {}  # by the company's name
        self._applications: list[Application] = []

    def company(self, name: str = "", **fields: Any) -> Company:
        company = super().company(name=name, **{"caps": []} | fields)
        over = {"expire_on": self.now - timedelta(days=1)}
        self._applications += (
            ours := self.application(company, api_key=f"{name} app"),
            off := self.application(company, api_key=f"{name} off", active=False),
            ended := self.application(company, api_key=f"{name} over", **over),
        )
        self.keys[ours.api_key] = company
        self.bad_keys += [off.api_key, ended.api_key]
        return company

    def connector(self, company: Company, **fields: Any) -> Connector:
        values = {"url": f"https://{company.name}.example/", "method": "POST", "auth": "header"}
        made = self.connectors[company.name] = super().connector(company, **values | fields)
        return made

    def venue(self, company: Company, name: str = "", **fields: Any) -> Venue:
        return super().venue(company, name=name, **fields)

    def beacon(self, venue: Venue, minor: int = 0, **fields: Any) -> Beacon:
        values = {"uuid": UUIDS[minor % 2], "major": minor // 3, "minor": minor, "tags": []}
        self.beacons.append(super().beacon(venue, **values | fields))
        return self.beacons[-1]

    def geofence(self, venue: Venue, **fields: Any) -> Geofence:
        self.places.append(made := super().geofence(venue, **{"tags": []} | fields))
        return made

    def scan_tag(self, venue: Venue, kind: str = "nfc", value: str = "", **fields: Any) -> ScanTag:
        made = super().scan_tag(venue, kind, value=value, **{"tags": []} | fields)
        self.places.append(made)
        return made

    def campaign(
        self, venue: Venue, name: str = "", targets: Sequence[Place] = (), **fields: Any
    ) -> Campaign:
        """A campaign that is always open, unless `fields` say otherwise."""
        values = {
            "name": name,
            "title": f"{name}!",
            "push": f"{name}: é 手机",
            "format": "template",
            "template": f"<p>{name}</p>",
            "html": None,
            "delay": 0,
            "start": self.now - timedelta(days=30),
            "end": self.now + timedelta(days=30),
            "weekdays": 127,
            "beacons": [each for each in targets if isinstance(each, Beacon)],
            "geofencings": [each for each in targets if isinstance(each, Geofence)],
            "scan_tags": [each for each in targets if isinstance(each, ScanTag)],
            "tags": [],
        }
        self.campaigns.append(super().campaign(venue, **values | fields))
        return self.campaigns[-1]

    def aim_by_tag(self, campaign: Campaign, targets: Sequence[Place]) -> None:
        """Aim a campaign by a tag."""
        tag = self.tag(campaign.venue.company)
        campaign.tags = [tag]
        for target in targets:
            target.tags = [*target.tags, tag]

    async def save(self, url: str) -> None:
        """Migrate the database and write everything."""
        others = *self._applications, *self.connectors.values()
        async with migrated(url) as database, database.write.begin() as session:
            session.add_all([*others, *self.beacons, *self.places, *self.campaigns])


def small_world(beacons: int = 20, places: int = 0, caps: Sequence[dict[str, Any]] = ()) -> World:
    """One venue, its beacons and places of other kinds, and for each of them campaigns with four
    delays. Those without a delay ignore the caps."""
    world = World()
    company = world.company("small", caps=list(caps))
    world.connector(company)
    venue = world.venue(company, "Hall")
    targets: list[Place] = [world.beacon(venue, minor) for minor in range(beacons)]
    for number in range(places):
        targets.append(world.geofence(venue, latitude=48.85 + number / 2000))
        targets.append(world.scan_tag(venue, ("nfc", "qrcode")[number % 2], f"value {number}"))
    for number, place in enumerate(targets):
        world.campaign(venue, f"always {number}", [place], ignores_caps=True)
        world.campaign(venue, f"seldom {number}", [place], delay=86_400)
    world.campaign(venue, "now and then", targets, delay=3, priority=7)
    world.campaign(venue, "asked for", targets, delay=7, **REQUESTED)
    return world


def large_world(dice: random.Random) -> World:
    """Companies, venues, beacons and campaigns of all kinds, most of them open."""
    world = World()
    minute = world.now.hour * 60 + world.now.minute
    quiet = {"start": _clock(minute - 90), "end": _clock(minute + 1)}  # ends within the run, in UTC
    rules: dict[str, dict[str, Any]] = {
        "alpha": {},
        "beta": {"caps": [{"max": 4, "per": "minute"}, {"max": 9, "per": "PT150S"}]},
        "gamma": {"quiet_hours": quiet, "time_zone": "UTC", "caps": [{"max": 9, "per": "PT1M"}]},
    }
    for name in ("alpha", "beta", "gamma"):
        company = world.company(name, **rules[name])
        if name != "gamma":
            world.connector(company)
        for number in range(3):
            # Where it is the venue's or the company's zone that holds a device back, a process that
            # remembers its claims may name them instead: no venue of gamma is in its zone.
            zone = dice.choice(ZONES[:3] if name == "gamma" else ZONES)
            active = (name, number) != ("beta", 1)
            venue = world.venue(company, f"{name} {number}", active=active, time_zone=zone)
            _furnish(world, venue, dice)
    return world


def _clock(minute: int) -> str:
    return f"{minute % 1440 // 60:02}:{minute % 60:02}"


def _furnish(world: World, venue: Venue, dice: random.Random) -> None:
    first = len(world.beacons)
    beacons = [
        world.beacon(
            venue,
            first + number,
            active=dice.random() > 0.1,
            proximity=dice.choice(("immediate", "near", "far", "far")),
        )
        for number in range(14)
    ]
    # Of the last beacons three have one campaign, and one has none.
    targets: list[Place] = [*beacons[:-4], *_other_places(world, venue, dice)]
    if venue.company.name not in world.connectors:
        world.campaign(venue, f"{venue.name} asks nobody", [beacons[-1]], **REQUESTED)
    kinds = _kinds(world.now, dice)
    for beacon, kind in zip(beacons[-4:-1], dice.sample(kinds[-10:], 3), strict=True):
        world.campaign(venue, f"{venue.name} for {beacon.name}", [beacon], **kind)
    for number, kind in enumerate(kinds):
        kind |= {"priority": dice.choice((0, 5, 5, 9)), "ignores_caps": dice.random() < 0.2}
        kind["ignores_quiet_hours"] = dice.random() < 0.2
        aimed_at = dice.sample(targets, dice.randint(1, 4))
        campaign = world.campaign(venue, f"{venue.name} {number}", aimed_at, **kind)
        if number % 3 == 0:
            world.aim_by_tag(campaign, dice.sample(targets, 3))


def _other_places(world: World, venue: Venue, dice: random.Random) -> list[Geofence | ScanTag]:
    """Overlapping geofences at a pole, at the 180th meridian or in a city, and tags. The last of
    each kind has no campaign."""
    centres = {"alpha": (48.85, 2.35), "beta": (-16.9, 179.999), "gamma": (89.999, 20.0)}
    latitude, longitude = centres[venue.company.name]
    first = len(world.places)
    for number in range(6):
        east = (longitude + dice.uniform(-0.02, 0.02) + 180) % 360 - 180
        circle = {"longitude": east, "latitude": latitude + dice.uniform(-0.01, 0.0009)}
        circle["radius"] = dice.choice((10, 50, 300, 3000))
        world.geofence(venue, **circle, active=dice.random() > 0.1)
        kind, active = ("nfc", "qrcode")[number % 2], dice.random() > 0.1
        world.scan_tag(venue, kind, f"{venue.name}\n{number} é", active=active)
    return world.places[first:-3]


def _kinds(now: datetime, dice: random.Random) -> list[dict[str, Any]]:
    """Fields of campaigns: open ones of every format and delay, and one closed in each way."""
    formats: list[dict[str, Any]] = [
        {"format": "template", "background": "#ffffff", "hash": "x1"},
        {"format": "url", "url": "https://example.org/?a=1&b=é", "template": None},
        {"format": "html", "html": "<b>\"'\\</b>", "template": None, "color": "red"},
        REQUESTED,
    ]
    delays = (0, 1, 2, 5, 30, 60, 3600, 86_400, 365 * 86_400)
    open_ = [dice.choice(formats) | {"delay": delay} for delay in delays]
    east = timezone(timedelta(hours=5, minutes=30))
    midnight = now.replace(hour=0, minute=0, second=0, tzinfo=east)
    minute = now.hour * 60 + now.minute
    closed: list[dict[str, Any]] = [
        {"active": False},
        {"start": now + timedelta(days=2)},
        {"end": now - timedelta(days=2)},
        {"weekdays": 0},
        {"weekdays": 1 << dice.randrange(7)},
        {"start_minute": (minute + 720) % 1440, "end_minute": (minute + 780) % 1440},
        {"start_minute": (minute - 90) % 1440, "end_minute": (minute + 1) % 1440 or 1440},
        {"start": now - timedelta(seconds=20), "delay": 3},
        {"end": now + timedelta(seconds=7), "delay": 3},
        {"start": midnight - timedelta(days=3), "end": midnight, "delay": 2},
    ]
    return open_ + closed
