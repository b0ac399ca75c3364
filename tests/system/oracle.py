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

from rules.model import Reason, Zone
from tests.rules import schedule_oracle
from tests.system.topics import Record
from tests.system.traffic import WORDS, Case
from tests.system.world import BeaconPlan, CampaignPlan, World

NAMESPACE = uuid.UUID("5f0c2a3e-7d0a-5c1b-9a8e-3f5d1c6b7e42")
LIFETIME = 300
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


class Oracle:
    """`now` (epoch s) is any time of the run, because no detection is near a bound of age."""

    def __init__(self, world: World, cases: list[Case], now: float) -> None:
        self._beacons = {plan.triple: plan for plan in world.beacons}
        self._connectors = {c.company.name: c for c in world.connectors.values()}
        self._models = {id(c): c.model for plan in world.beacons for c in plan.campaigns}
        self._cases = cases
        self._now = now
        self._claims: dict[tuple[int, str], list[float]] = {}
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
        plan = self._beacons.get(case.triple)
        refused = self._refusal(plan, case.zone, ms / 1000)
        if plan is None or refused is not None:
            expected.detections[str(refused)] += 1
            expected.decisions[str(refused)] += 1
            return
        fates = []
        for campaign in plan.campaigns:
            fate = self._fate(campaign, str(case.device["udid"]), ms)
            fates.append(fate)
            if fate == "granted":
                self._send(record, case, ms, plan, campaign, expected)
        expected.decisions.update(fates)
        expected.detections[max(fates, key=ORDER.index)] += 1

    def _refusal(self, plan: BeaconPlan | None, zone: Zone, t: float) -> str | None:
        if plan is None:
            return "unknown_beacon"
        failed = {
            "inactive_venue": not plan.venue.active,
            "inactive_beacon": not plan.record.active,
            "no_campaign": not plan.campaigns,
            "unknown_proximity": zone is Zone.UNKNOWN,
            "too_far": zone not in REACH[plan.record.proximity],
            "stale": t < self._now - MAX_AGE,
            "future": t > self._now + MAX_AGE,
        }
        return next((reason for reason, fails in failed.items() if fails), None)

    def _fate(self, plan: CampaignPlan, udid: str, ms: int) -> str:
        closed = self._verdict(id(plan), ms // 1000)
        if closed is not None:
            return closed
        company = plan.venue.company.name
        if plan.record.format == "connector" and company not in self._connectors:
            return "no_connector"
        delay = plan.record.delay * 1000
        if delay:
            claims = self._claims.setdefault((plan.record.id, udid), [])
            if any(ms < granted + delay for granted in claims):
                return "throttled"
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
        plan: BeaconPlan,
        campaign: CampaignPlan,
        expected: Expected,
    ) -> None:
        name = (campaign.record.id, case.device["udid"], record.topic, record.partition)
        number = uuid.uuid5(NAMESPACE, "\0".join(map(str, (*name, record.offset, ms))))
        body = _common(str(number), case, ms, plan, campaign)
        if campaign.record.format == "connector":
            body["delay"] = campaign.record.delay
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
    number: str, case: Case, ms: int, plan: BeaconPlan, campaign: CampaignPlan
) -> dict[str, Any]:
    beacon, venue, record = plan.record, plan.venue, campaign.record
    uuid_, major, minor = plan.triple
    return {
        "id": number,
        "campaign": {"id": record.id, "name": record.name, "hash": record.hash},
        "company": {"id": venue.company.id},
        "venue": {"id": venue.id, "name": venue.name},
        "beacon": {
            "id": beacon.id,
            "name": beacon.name,
            "uuid": uuid_,
            "major": major,
            "minor": minor,
        },
        "proximity": WORDS[case.zone],
        "device": case.device,
        "title": record.title,
        "push": record.push,
        "background": record.background,
        "color": record.color,
        "detected_at": written(ms / 1000),
        "expires_at": written(ms / 1000 + LIFETIME),
    }


def written(t: float) -> str:
    """A timestamp in the form of the engine."""
    return datetime.fromtimestamp(math.floor(t), UTC).strftime("%Y-%m-%dT%H:%M:%S+0000")
