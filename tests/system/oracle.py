"""Computes the expected messages by brute force, from the contract and the generator's intent.

It shares nothing with the engine: it walks each partition of detections by offset, keeps every
claim ever granted, and uses the schedule oracle. It uses only records of `rules.model`.
"""

import math
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from operator import itemgetter
from typing import Any

from catalog.models import Beacon, Campaign, Geofence
from rules.model import CampaignSnapshot, Reason, Zone
from rules.parsing import parse_delay
from tests.rules import schedule_oracle
from tests.system.topics import Record
from tests.system.traffic import WORDS, Case, triple_of
from tests.system.world import Place, World, kind_of

NAMESPACE = uuid.UUID("5f0c2a3e-7d0a-5c1b-9a8e-3f5d1c6b7e42")
LIFETIME = 300
EARTH = 6_371_008.8  # metres
ORDER = [reason.value for reason in Reason]
REACH = {
    "immediate": {Zone.IMMEDIATE},
    "near": {Zone.IMMEDIATE, Zone.NEAR},
    "far": {Zone.IMMEDIATE, Zone.NEAR, Zone.FAR},
}


@dataclass
class Expected:
    """The expected content of topics and metrics; messages by id."""

    notifications: dict[str, dict[str, Any]] = field(default_factory=dict)
    connector_calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    dead: dict[tuple[int, int], tuple[Record, str]] = field(default_factory=dict)
    detections: Counter[str] = field(default_factory=Counter)
    decisions: Counter[str] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)
    exits: int = 0


class Oracle:
    """`now` (epoch s) is any time of the run, because no detection is near the bound `max_age`."""

    def __init__(self, world: World, cases: list[Case], now: float, max_age: float = 300) -> None:
        self._world = world
        self._beacons = {triple_of(each): each for each in world.beacons}
        self._campaigns = {
            id(place): _at(place, world) for place in (*world.beacons, *world.places)
        }
        self._cases = cases
        self._now = now
        self._max_age = max_age
        self._claims: dict[tuple[int, str], list[float]] = {}
        self._counted: dict[tuple[str, str], list[int]] = {}  # by company and device
        self._verdict = cache(lambda c, second: schedule_oracle.verdict(_snapshot(c), second))

    def walk(self, records: Iterable[Record]) -> Expected:
        """Decide all detections; `records` are in order of partition and offset."""
        expected = Expected()
        for record in records:
            case = self._cases[int(dict(record.headers)["case"])]
            if case.malformed is not None:
                expected.dead[record.partition, record.offset] = (record, case.malformed)
            else:
                self._decide(record, case, expected)
        return expected

    def _decide(self, record: Record, case: Case, expected: Expected) -> None:
        ms = record.timestamp if case.detected_ms is None else case.detected_ms
        if case.place.get("geofence", {}).get("transition") == "exit":
            expected.exits += 1
            return
        places = self._places(case)
        fates: dict[int, list[str]] = {}  # by place
        waiting: list[tuple[tuple[int, int], Any, Campaign]] = []
        for place in [places] if isinstance(places, str) else places:
            refused = (
                place if isinstance(place, str) else self._refusal(place, case.zone, ms / 1000)
            )
            if isinstance(place, str) or refused is not None:
                expected.detections[str(refused)] += 1
                expected.decisions[str(refused)] += 1
                continue
            campaigns = self._campaigns[id(place)]
            closed = [self._closed(each, case.device, ms) for each in campaigns]
            fates[id(place)] = [each for each in closed if each is not None]
            for campaign, reason in zip(campaigns, closed, strict=True):
                if reason is None:
                    waiting.append(((-campaign.priority, campaign.id), place, campaign))
        fired: set[int] = set()  # by one position, which may be in several geofences
        for _, place, campaign in sorted(waiting, key=itemgetter(0)):
            fate = self._fate(campaign, str(case.device["udid"]), ms, fired)
            fates[id(place)].append(fate)
            if fate == "granted":
                fired.add(campaign.id)
                self._send(record, case, ms, place, campaign, expected)
        for each in fates.values():
            expected.decisions.update(each)
            expected.detections[max(each, key=ORDER.index)] += 1

    def _places(self, case: Case) -> list[Any] | str:
        """The places of a detection, or why it has none."""
        place = case.place
        if not place:
            beacon = self._beacons.get(case.triple)
            return "unknown_beacon" if beacon is None else [beacon]
        fences = [each for each in self._world.places if isinstance(each, Geofence)]
        if "geofence" in place:
            id_ = place["geofence"]["id"]
            return [each for each in fences if each.id == id_] or "unknown_geofence"
        company = self._world.keys.get(place["api_key"])
        if company is None:
            return "unknown_application"
        if "tag" in place:
            scan = (place["tag"]["kind"], place["tag"]["value"], company)
            tags = [each for each in self._world.places if not isinstance(each, Geofence)]
            found = [each for each in tags if (each.kind, each.value, each.venue.company) == scan]
            return found or "unknown_tag"
        position = place["position"]
        own = [each for each in fences if each.venue.company is company]
        inside = [each for each in own if is_inside(position, each)]
        accuracy = position.get("accuracy", 0)
        accurate = [each for each in inside if accuracy <= max(each.radius, 100)]
        accurate.sort(key=lambda each: each.id)
        return accurate or ("inaccurate" if inside else "outside")

    def _refusal(self, place: Place, zone: Zone, t: float) -> str | None:
        group = {"nfc": "tag", "qrcode": "tag"}.get(kind_of(place), kind_of(place))
        beacon = place if isinstance(place, Beacon) else None
        failed = {
            "inactive_venue": not place.venue.active,
            f"inactive_{group}": not place.active,
            "no_campaign": not self._campaigns[id(place)],
            "unknown_proximity": beacon and zone is Zone.UNKNOWN,
            "too_far": beacon and zone not in REACH[beacon.proximity],
            "stale": t < self._now - self._max_age,
            "future": t > self._now + self._max_age,
        }
        return next((reason for reason, fails in failed.items() if fails), None)

    def _closed(self, campaign: Campaign, device: dict[str, Any], ms: int) -> str | None:
        closed = self._verdict(campaign, ms // 1000)
        if closed is not None:
            return str(closed.value)
        company = campaign.venue.company
        if campaign.format == "connector" and company.name not in self._world.connectors:
            return "no_connector"
        if company.quiet_hours and not campaign.ignores_quiet_hours:
            zone = device.get("time_zone") or campaign.venue.time_zone or company.time_zone
            if schedule_oracle.is_within(company.quiet_hours, str(zone), ms // 1000):
                return "quiet_hours"
        return None

    def _fate(self, campaign: Campaign, udid: str, ms: int, fired: set[int]) -> str:
        """What claims and caps say."""
        company = campaign.venue.company
        claims = self._claims.setdefault((campaign.id, udid), [])
        delay = campaign.delay * 1000
        if campaign.id in fired or (delay and any(ms < each + delay for each in claims)):
            return "throttled"
        if not campaign.ignores_caps:
            counted = self._counted.setdefault((company.name, udid), [])
            if any(is_over([*counted, ms], cap) for cap in company.caps):
                return "capped"
            counted.append(ms)
        claims.append(ms)
        return "granted"

    def _send(
        self,
        record: Record,
        case: Case,
        ms: int,
        place: Place,
        campaign: Campaign,
        expected: Expected,
    ) -> None:
        name = (campaign.id, case.device["udid"], record.topic, record.partition)
        number = uuid.uuid5(NAMESPACE, "\0".join(map(str, (*name, record.offset, ms))))
        body = _common(str(number), case, ms, place, campaign)
        if campaign.format == "connector":
            body["delay"] = campaign.delay
            company = campaign.venue.company
            if company.caps and not campaign.ignores_caps:
                body["caps"] = [[each["max"], parse_delay(each["per"])] for each in company.caps]
            connector = self._world.connectors[company.name]
            names = ("id", "name", "url", "method", "auth", "parameters")
            body["connector"] = {each: getattr(connector, each) for each in names}
            expected.connector_calls[str(number)] = body
        else:
            kind = campaign.format
            expected.formats[kind] += 1
            body |= {"format": kind, kind: getattr(campaign, kind)}
            expected.notifications[str(number)] = body


def _at(place: Place, world: World) -> list[Campaign]:
    """The campaigns that target a place, by itself or by a tag."""
    return [
        each
        for each in world.campaigns
        if place in (*each.beacons, *each.geofencings, *each.scan_tags)
        or (each.venue is place.venue and set(each.tags) & set(place.tags))
    ]


def _snapshot(campaign: Campaign) -> CampaignSnapshot:
    names = set(CampaignSnapshot.__struct_fields__) - {"content", "time_zone"}
    return CampaignSnapshot(
        content=getattr(campaign, campaign.format, None),
        time_zone=campaign.venue.time_zone,
        **{name: getattr(campaign, name) for name in names},
    )


def _common(number: str, case: Case, ms: int, place: Place, campaign: Campaign) -> dict[str, Any]:
    venue = place.venue
    reference: dict[str, Any] = {kind_of(place): {"id": place.id, "name": place.name}}
    if isinstance(place, Beacon):
        triple = {"uuid": place.uuid, "major": place.major, "minor": place.minor}
        reference = {"beacon": reference["beacon"] | triple, "proximity": WORDS[case.zone]}
    return {
        "id": number,
        "campaign": {"id": campaign.id, "name": campaign.name, "hash": campaign.hash},
        "company": {"id": venue.company.id},
        "venue": {"id": venue.id, "name": venue.name},
        **reference,
        "device": case.device,
        "title": campaign.title,
        "push": campaign.push,
        "background": campaign.background,
        "color": campaign.color,
        "detected_at": written(ms / 1000),
        "expires_at": written(ms / 1000 + LIFETIME),
    }


def is_over(sent: list[int], cap: dict[str, Any]) -> bool:
    """Whether a stretch of the cap's length, in milliseconds, has more than it allows."""
    lasts = parse_delay(cap["per"]) * 1000
    return any(sum(a <= each < a + lasts for each in sent) > cap["max"] for a in sent)


def is_inside(position: dict[str, float], circle: Geofence) -> bool:
    """By the straight line through the earth."""

    def point(latitude: float, longitude: float) -> tuple[float, float, float]:
        phi, theta = math.radians(latitude), math.radians(longitude)
        return math.cos(phi) * math.cos(theta), math.cos(phi) * math.sin(theta), math.sin(phi)

    here = point(position["latitude"], position["longitude"])
    line = math.dist(here, point(circle.latitude, circle.longitude))
    return 2 * EARTH * math.asin(min(1.0, line / 2)) <= circle.radius


def written(t: float) -> str:
    """A timestamp in the form of the engine."""
    return datetime.fromtimestamp(math.floor(t), UTC).strftime("%Y-%m-%dT%H:%M:%S+0000")
