"""An explanation before a detection agrees with the trigger's decision, claims included."""

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.cli.explain import explained
from engine.kafka.detections import BeaconKey
from rules.explanation import Explanation
from rules.model import Reason, Zone
from tests.redis.index_writer import beacon_entry, campaign_entry
from tests.rules.records import UUID, venue
from tests.trigger.pushed import NOW, PushedTrigger, detection

TODAY = datetime.fromtimestamp(NOW / 1000, UTC)
CAMPAIGNS: tuple[dict[str, Any], ...] = (
    {"delay": 60},
    {"delay": 3600},
    {},
    {"active": False},
    {"start": TODAY + timedelta(days=1)},
    {"end": TODAY - timedelta(days=2)},
    {"weekdays": 127 - (1 << TODAY.weekday())},
    {"start_minute": (TODAY.hour + 2) % 24 * 60, "end_minute": (TODAY.hour + 3) % 24 * 60},
    {"format": "connector", "content": None},
)
KNOWN, OFF, EMPTY, CLOSED, STRANGE = range(1, 6)


@pytest.fixture
async def catalog(trigger: PushedTrigger) -> PushedTrigger:
    numbers = list(range(1, len(CAMPAIGNS) + 1))
    fields = beacon_entry(numbers, KNOWN) | beacon_entry(numbers, OFF, active=False)
    fields |= beacon_entry([], EMPTY) | beacon_entry(numbers, CLOSED, venue=venue(active=False))
    for number, changes in zip(numbers, CAMPAIGNS, strict=True):
        fields |= campaign_entry(number, **changes)
    await trigger.write_index(fields)
    return trigger


async def answer(
    trigger: PushedTrigger, at: float, now: float, udid: str | None = "anna", **other: Any
) -> Explanation:
    """The explanation of a detection, near the known beacon unless `other` says otherwise."""
    key = BeaconKey(UUID, 1, other.pop("minor", KNOWN))
    found = await explained(
        trigger.settings,
        trigger.redis,
        key,
        udid,
        **({"zone": Zone.NEAR, "detected_at": at, "decided_at": now} | other),
    )
    return found[2]


def outcomes(explanation: Explanation) -> Counter[Reason]:
    """Outcomes as the metric counts them: a refused detection once."""
    shared = {each.check for each in explanation.checks}
    if explanation.reason in shared:
        return Counter([explanation.reason])
    return Counter(each.reason for each in explanation.campaigns)


def draws(now: float) -> Iterator[tuple[int, str, Zone, float, float]]:
    """Detections of a few devices, in time, most of them at the beacon that is open."""
    draw = random.Random(20261122)
    for _ in range(50):
        now += draw.choice((0, 1, 15, 45, 61))
        minor = draw.choice((KNOWN,) * 8 + (OFF, EMPTY, CLOSED, STRANGE))
        zone = draw.choice((Zone.IMMEDIATE, Zone.NEAR, Zone.NEAR, Zone.NEAR, *Zone))
        age = draw.choice((0, 0, 0, 0, 0, 2, 40, 299, 400, -400))
        yield minor, draw.choice(("anna", "ben", "carl")), zone, now - age, now


async def test_explained_is_decided(catalog: PushedTrigger):
    seen: Counter[Reason] = Counter()
    for minor, udid, zone, at, now in draws(catalog.now):
        catalog.now = now
        found = await answer(catalog, at, now, udid, minor=minor, zone=zone)
        before = decided(catalog)
        value = detection(udid, seconds=at - NOW / 1000, minor=minor, proximity=int(zone))
        await catalog.push(value)
        assert decided(catalog) - before == outcomes(found)
        seen += outcomes(found)
    assert len(seen) == 16


def decided(trigger: PushedTrigger) -> Counter[Reason]:
    counts = {each: int(trigger.count("decisions_total", reason=each)) for each in Reason}
    return Counter(counts)
