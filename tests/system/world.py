"""A catalog for acceptance tests: its plan, how it is written to SQL, and what it means.

A plan holds both the record for SQL and the model for the oracle.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from catalog.database import open_database
from catalog.models import (
    Application,
    Beacon,
    Campaign,
    Company,
    Connector,
    Geofence,
    ScanTag,
    Tag,
    Venue,
)
from rules.model import CampaignSnapshot
from tests.servers.schema import make_schema

UUIDS = ("f7826da6-4fa2-4e98-8024-bc5b71e0893e", "e2c56db5-dffb-48d2-b060-d0f5a71096e0")
ZONES = ("Europe/Paris", "Asia/Kolkata", "America/St_Johns", None)

Triple = tuple[str, int, int]


@dataclass
class PlacePlan:
    """A place, its venue, and the campaigns that target it."""

    record: Any
    venue: Venue
    campaigns: list["CampaignPlan"] = field(default_factory=list)

    @property
    def kind(self) -> str:
        known = {Beacon: "beacon", Geofence: "geofence"}
        return known.get(type(self.record)) or str(self.record.kind)


class BeaconPlan(PlacePlan):
    """The same of a beacon."""

    record: Beacon

    @property
    def triple(self) -> Triple:
        return self.record.uuid, self.record.major, self.record.minor


@dataclass
class CampaignPlan:
    """A campaign with the data that the oracle needs. `model` is set once the ids are known."""

    record: Campaign
    venue: Venue

    @property
    def model(self) -> CampaignSnapshot:
        record, others = self.record, {"content", "time_zone", "asleep"}
        names = set(CampaignSnapshot.__struct_fields__) - others
        return CampaignSnapshot(
            content=getattr(record, record.format, None),
            time_zone=self.venue.time_zone,
            **{name: getattr(record, name) for name in names},
        )


class World:
    """Everything that was planned; `save` writes it to SQL."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.records: list[Any] = []
        self.beacons: list[BeaconPlan] = []
        self.places: list[PlacePlan] = []  # the others
        self.keys: dict[str, Company] = {}  # of applications that may send
        self.bad_keys = ["nobody's", "é" * 200]
        self.connectors: dict[str, Connector] = {}

    def company(self, name: str, *, connector: bool = False, **fields: Any) -> Company:
        company = Company(name=name, create_on=self.now, **({"caps": []} | fields))
        self.records.append(company)
        self.keys[self._application(company, "app")] = company
        self.bad_keys += [
            self._application(company, "off", active=False),
            self._application(company, "over", expire_on=self.now - timedelta(days=1)),
        ]
        if connector:
            self.connectors[name] = Connector(
                company=company,
                name=f"{name}'s",
                url=f"https://{name}.example/",
                method="POST",
                auth="header",
                parameters="token",
                secret=None,
            )
            self.records.append(self.connectors[name])
        return company

    def _application(self, company: Company, name: str, **fields: Any) -> str:
        key = f"{company.name} {name}"
        application = Application(company=company, name=name, type="ios", api_key=key, **fields)
        self.records.append(application)
        return key

    def venue(self, company: Company, name: str, **fields: Any) -> Venue:
        values = {"company": company, "name": name, "address": "-", "active": True, **fields}
        venue = Venue(**values)
        self.records.append(venue)
        return venue

    def beacon(self, venue: Venue, minor: int, **fields: Any) -> BeaconPlan:
        values = {
            "venue": venue,
            "name": f"beacon {minor}",
            "uuid": UUIDS[minor % 2],
            "major": minor // 3,
            "minor": minor,
            "active": True,
            "proximity": "far",
            "tags": [],
            **fields,
        }
        plan = BeaconPlan(Beacon(**values), venue)
        self.records.append(plan.record)
        self.beacons.append(plan)
        return plan

    def geofence(
        self, venue: Venue, latitude: float, longitude: float, radius: int, **fields: Any
    ) -> PlacePlan:
        circle = {"latitude": latitude, "longitude": longitude, "radius": radius}
        return self._place(Geofence, venue, **circle, **fields)

    def scan_tag(self, venue: Venue, kind: str, value: str, **fields: Any) -> PlacePlan:
        what = {"company": venue.company, "kind": kind, "value": value}
        return self._place(ScanTag, venue, **what, **fields)

    def _place(self, model: type[Any], venue: Venue, **fields: Any) -> PlacePlan:
        values = {"name": f"place {len(self.places)}", "active": True, "tags": [], **fields}
        plan = PlacePlan(model(venue=venue, **values), venue)
        self.records.append(plan.record)
        self.places.append(plan)
        return plan

    def campaign(
        self, venue: Venue, name: str, targets: Sequence[PlacePlan], **fields: Any
    ) -> CampaignPlan:
        of_kind = {
            kind: [target.record for target in targets if target.kind in kind]
            for kind in ("beacon", "geofence", "nfc qrcode")
        }
        values = {
            "venue": venue,
            "name": name,
            "title": f"{name}!",
            "push": f"{name}: é 手机",
            "format": "template",
            "template": f"<p>{name}</p>",
            "cache": "as planned",
            "delay": 0,
            "start": self.now - timedelta(days=30),
            "end": self.now + timedelta(days=30),
            "start_minute": 0,
            "end_minute": 1440,
            "active": True,
            "weekdays": 127,
            "beacons": of_kind["beacon"],
            "geofencings": of_kind["geofence"],
            "scan_tags": of_kind["nfc qrcode"],
            "tags": [],
            **fields,
        }
        plan = CampaignPlan(Campaign(**values), venue)
        self.records.append(plan.record)
        for target in targets:
            target.campaigns.append(plan)
        return plan

    def tag(self, campaign: CampaignPlan, name: str, targets: Sequence[PlacePlan]) -> None:
        """Aim a campaign by a tag."""
        tag = Tag(company=campaign.venue.company, name=name)
        self.records.append(tag)
        campaign.record.tags = [tag]
        for target in targets:
            target.record.tags = [*target.record.tags, tag]
            if campaign not in target.campaigns:
                target.campaigns.append(campaign)

    async def save(self, url: str) -> None:
        """Migrate the database and write everything."""
        await make_schema(url)
        database = open_database(url)
        async with database.write.begin() as session:
            session.add_all(self.records)
        await database.close()


def small_world(
    now: datetime | None = None,
    beacons: int = 20,
    places: int = 0,
    caps: Sequence[dict[str, Any]] = (),
) -> World:
    """One venue, its beacons and places of other kinds, and for each of them campaigns with four
    delays. Those without a delay ignore the caps."""
    world = World(now or datetime.now(UTC).replace(microsecond=0))
    venue = world.venue(world.company("small", connector=True, caps=list(caps)), "Hall")
    plans: list[PlacePlan] = [world.beacon(venue, minor) for minor in range(beacons)]
    for number in range(places):
        plans.append(world.geofence(venue, 48.85 + number / 2000, 2.35, 100))
        plans.append(world.scan_tag(venue, ("nfc", "qrcode")[number % 2], f"value {number}"))
    for number, plan in enumerate(plans):
        world.campaign(venue, f"always {number}", [plan], ignores_caps=True)
        world.campaign(venue, f"seldom {number}", [plan], delay=86_400)
    world.campaign(venue, "now and then", plans, delay=3, priority=7)
    world.campaign(venue, "asked for", plans, delay=7, format="connector", template=None)
    return world


def large_world(now: datetime, dice: random.Random) -> World:
    """Companies, venues, beacons and campaigns of all kinds, most of them open."""
    world, minute = World(now), now.hour * 60 + now.minute
    quiet = {"start": _clock(minute - 90), "end": _clock(minute + 1)}  # ends within the run, in UTC
    rules: dict[str, dict[str, Any]] = {
        "alpha": {},
        "beta": {"caps": [{"max": 4, "per": "minute"}, {"max": 9, "per": "PT150S"}]},
        "gamma": {"quiet_hours": quiet, "time_zone": "UTC", "caps": [{"max": 9, "per": "PT1M"}]},
    }
    for name in ("alpha", "beta", "gamma"):
        company = world.company(name, connector=name != "gamma", **rules[name])
        for number in range(3):
            zone = dice.choice(ZONES)
            venue = world.venue(
                company, f"{name} {number}", active=(name, number) != ("beta", 1), time_zone=zone
            )
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
    places = _other_places(world, venue, dice)
    if venue.company.name not in world.connectors:
        requested = {"format": "connector", "template": None}
        world.campaign(venue, f"{venue.name} asks nobody", [beacons[-1]], **requested)
    kinds = _kinds(world.now, dice)
    aimed_at = [
        *beacons[:-4],
        *places,
    ]  # of the last ones, three have one campaign and one has none
    for beacon, kind in zip(beacons[-4:-1], dice.sample(kinds[-10:], 3), strict=True):
        world.campaign(venue, f"{venue.name} for {beacon.record.name}", [beacon], **kind)
    for number, kind in enumerate(kinds):
        kind |= {"priority": dice.choice((0, 5, 5, 9)), "ignores_caps": dice.random() < 0.2}
        kind["ignores_quiet_hours"] = dice.random() < 0.2
        plan = world.campaign(
            venue, f"{venue.name} {number}", dice.sample(aimed_at, dice.randint(1, 4)), **kind
        )
        if number % 3 == 0:
            world.tag(plan, f"{venue.name} tag {number}", dice.sample(aimed_at, 3))


def _other_places(world: World, venue: Venue, dice: random.Random) -> list[PlacePlan]:
    """Overlapping geofences at a pole, at the 180th meridian or in a city, and tags. The last of
    each kind has no campaign."""
    centres = {"alpha": (48.85, 2.35), "beta": (-16.9, 179.999), "gamma": (89.999, 20.0)}
    latitude, longitude = centres[venue.company.name]
    found: list[PlacePlan] = []
    for number in range(6):
        east = (longitude + dice.uniform(-0.02, 0.02) + 180) % 360 - 180
        radius = dice.choice((10, 50, 300, 1000, 3000))
        north = latitude + dice.uniform(-0.01, 0.0009)
        active = dice.random() > 0.1
        found.append(world.geofence(venue, north, east, radius, active=active))
        kind, active = ("nfc", "qrcode")[number % 2], dice.random() > 0.1
        found.append(world.scan_tag(venue, kind, f"{venue.name}\n{number} é", active=active))
    return found[:-3]


def _kinds(now: datetime, dice: random.Random) -> list[dict[str, Any]]:
    """Fields of campaigns: open ones of every format and delay, and one closed in each way."""
    formats: list[dict[str, Any]] = [
        {"format": "template", "background": "#ffffff", "hash": "x1"},
        {"format": "url", "url": "https://example.org/?a=1&b=é", "template": None},
        {"format": "html", "html": "<b>\"'\\</b>", "template": None, "color": "red"},
        {"format": "connector", "template": None},
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
