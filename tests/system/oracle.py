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
from functools import lru_cache
from typing import Any

from catalog.models import Geofence
from rules.model import Reason, Zone
from rules.parsing import parse_delay
from tests.rules import schedule_oracle
from tests.system.topics import Record
from tests.system.traffic import WORDS, Case
from tests.system.world import CampaignPlan, PlacePlan, World

NAMESPACE = uuid.UUID("5f0c2a3e-7d0a-5c1b-9a8e-3f5d1c6b7e42")
LIFETIME = 300
EARTH = 6_371_008.8  # metres
MAX_AGE = 300
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
    """`now` (epoch s) is any time of the run, because no detection is near a bound of age."""

    def __init__(self, world: World, cases: list[Case], now: float) -> None:
        self._beacons = {plan.triple: plan for plan in world.beacons}
        self._connectors = {c.company.name: c for c in world.connectors.values()}
        self._places = world.places
        self._keys = world.keys
        plans = [*world.beacons, *world.places]
        self._models = {id(c): c.model for plan in plans for c in plan.campaigns}
        self._cases = cases
        self._now = now
        self._claims: dict[tuple[int, str], list[float]] = {}
        self._counted: dict[tuple[str, str], list[int]] = {}  # by company and device
        self._verdict = lru_cache(maxsize=None)(self._verdict_of)

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
        plans = self._plans(case)
        fired: set[int] = set()  # by one position, which may be in several geofences
        for plan in [plans] if isinstance(plans, str) else plans:
            refused = self._refusal(plan, case.zone, ms / 1000)
            if isinstance(plan, str) or refused is not None:
                expected.detections[str(refused)] += 1
                expected.decisions[str(refused)] += 1
                continue
            fates = []
            order = sorted(plan.campaigns, key=lambda c: (-c.record.priority, c.record.id))
            for campaign in order:
                fate = self._fate(campaign, case.device, ms, fired)
                fates.append(fate)
                if fate == "granted":
                    fired.add(campaign.record.id)
                    self._send(record, case, ms, plan, campaign, expected)
            expected.decisions.update(fates)
            expected.detections[max(fates, key=ORDER.index)] += 1

    def _plans(self, case: Case) -> list[PlacePlan] | str:
        """The places of a detection, or why it has none."""
        place = case.place
        if not place:
            beacon = self._beacons.get(case.triple)
            return "unknown_beacon" if beacon is None else [beacon]
        if "geofence" in place:
            id_ = place["geofence"]["id"]
            fences = [each for each in self._places if each.kind == "geofence"]
            return [each for each in fences if each.record.id == id_] or "unknown_geofence"
        company = self._keys.get(place["api_key"])
        if company is None:
            return "unknown_application"
        own = [each for each in self._places if each.venue.company is company]
        if "tag" in place:
            scan = (place["tag"]["kind"], place["tag"]["value"])
            tags = [each for each in own if each.kind != "geofence"]
            return [
                each for each in tags if (each.kind, each.record.value) == scan
            ] or "unknown_tag"
        position = place["position"]
        inside = [
            each for each in own if each.kind == "geofence" and is_inside(position, each.record)
        ]
        accuracy = position.get("accuracy", 0)
        accurate = [each for each in inside if accuracy <= max(each.record.radius, 100)]
        accurate.sort(key=lambda each: each.record.id)
        return accurate or ("inaccurate" if inside else "outside")

    def _refusal(self, plan: PlacePlan | str, zone: Zone, t: float) -> str | None:
        if isinstance(plan, str):
            return plan
        group = {"nfc": "tag", "qrcode": "tag"}.get(plan.kind, plan.kind)
        beacon = plan.record if plan.kind == "beacon" else None
        failed = {
            "inactive_venue": not plan.venue.active,
            f"inactive_{group}": not plan.record.active,
            "no_campaign": not plan.campaigns,
            "unknown_proximity": beacon and zone is Zone.UNKNOWN,
            "too_far": beacon and zone not in REACH[beacon.proximity],
            "stale": t < self._now - MAX_AGE,
            "future": t > self._now + MAX_AGE,
        }
        return next((reason for reason, fails in failed.items() if fails), None)

    def _fate(self, plan: CampaignPlan, device: dict[str, Any], ms: int, fired: set[int]) -> str:
        closed = self._verdict(id(plan), ms // 1000)
        if closed is not None:
            return closed
        company = plan.venue.company.name
        if plan.record.format == "connector" and company not in self._connectors:
            return "no_connector"
        udid, firm = str(device["udid"]), plan.venue.company
        if firm.quiet_hours and not plan.record.ignores_quiet_hours:
            zone = device.get("time_zone") or plan.venue.time_zone or firm.time_zone
            if schedule_oracle.is_within(firm.quiet_hours, str(zone), ms // 1000):
                return "quiet_hours"
        if plan.record.id in fired:
            return "throttled"
        delay = plan.record.delay * 1000
        claims = self._claims.setdefault((plan.record.id, udid), [])
        if delay and any(ms < granted + delay for granted in claims):
            return "throttled"
        if not plan.record.ignores_caps:
            counted = self._counted.setdefault((company, udid), [])
            if any(is_over([*counted, ms], cap) for cap in firm.caps):
                return "capped"
            counted.append(ms)
        claims.append(ms)
        return "granted"

    def _verdict_of(self, key: int, second: int) -> str | None:
        reason = schedule_oracle.verdict(self._models[key], second)
        return None if reason is None else reason.value

    def _send(
        self,
        record: Record,
        case: Case,
        ms: int,
        plan: PlacePlan,
        campaign: CampaignPlan,
        expected: Expected,
    ) -> None:
        name = (campaign.record.id, case.device["udid"], record.topic, record.partition)
        number = uuid.uuid5(NAMESPACE, "\0".join(map(str, (*name, record.offset, ms))))
        body = _common(str(number), case, ms, plan, campaign)
        if campaign.record.format == "connector":
            body["delay"] = campaign.record.delay
            caps = plan.venue.company.caps
            if caps and not campaign.record.ignores_caps:
                body["caps"] = [[each["max"], parse_delay(each["per"])] for each in caps]
            connector = self._connectors[plan.venue.company.name]
            names = ("id", "name", "url", "method", "auth", "parameters")
            body["connector"] = {each: getattr(connector, each) for each in names}
            expected.connector_calls[str(number)] = body
        else:
            kind = campaign.record.format
            expected.formats[kind] += 1
            body |= {"format": kind, kind: getattr(campaign.record, kind)}
            expected.notifications[str(number)] = body


def _common(
    number: str, case: Case, ms: int, plan: PlacePlan, campaign: CampaignPlan
) -> dict[str, Any]:
    place, venue, record = plan.record, plan.venue, campaign.record
    reference: dict[str, Any] = {plan.kind: {"id": place.id, "name": place.name}}
    if plan.kind == "beacon":
        triple = {"uuid": place.uuid, "major": place.major, "minor": place.minor}
        reference = {"beacon": reference["beacon"] | triple, "proximity": WORDS[case.zone]}
    return {
        "id": number,
        "campaign": {"id": record.id, "name": record.name, "hash": record.hash},
        "company": {"id": venue.company.id},
        "venue": {"id": venue.id, "name": venue.name},
        **reference,
        "device": case.device,
        "title": record.title,
        "push": record.push,
        "background": record.background,
        "color": record.color,
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
