"""With the compiled filter and without it the trigger does the same."""

import random
import sys
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from engine.kafka.detections import decode_record
from engine.trigger.visits import observation
from rules.model import Zone
from rules.visits import VisitBook
from tests.redis.index_writer import beacon_entry, campaign_entry, rules_entry
from tests.servers.missing import compiled
from tests.trigger.conftest import MakeTrigger
from tests.trigger.pushed import PushedTrigger, detection

MOMENTS = (("enter", None), ("dwell", None), ("exit", "silence"), ("exit", "signal"))
PHONES = [f"phone-{number}" for number in range(8)]


class CountingFilter:
    """Counts what the filter refuses."""

    def __init__(self, inner: Any) -> None:
        self.refused = 0
        self._inner = inner

    def split(self, *arguments: Any) -> Any:
        others, filtered = self._inner.split(*arguments)
        self.refused += len(filtered[0])
        return others, filtered


@pytest.fixture(params=[True, False], ids=["compiled", "interpreted"])
async def trigger(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, trigger_with: MakeTrigger
) -> PushedTrigger:
    """A trigger that notes no decisions of devices, for which it would decode all small batches."""
    if request.param:
        compiled("engine.trigger.record_filter")
    else:
        monkeypatch.setitem(sys.modules, "engine.trigger.record_filter", None)
    pushed = await trigger_with(recent_decisions=0)
    intake = pushed.role.intake
    assert (intake.filter is not None) is request.param
    if intake.filter is not None:
        counting: Any = CountingFilter(intake.filter)
        pushed.role = replace(pushed.role, intake=replace(intake, filter=counting))
        await pushed.worker.abandon()
        pushed.worker = pushed.assigned()
    return pushed


def undecoded(trigger: PushedTrigger) -> int:
    """How many detections were refused without being decoded."""
    inner = trigger.role.intake.filter
    return inner.refused if isinstance(inner, CountingFilter) else 0


async def test_devices_that_stay_are_counted_alike(trigger: PushedTrigger) -> None:
    await trigger.write_index(
        beacon_entry([7]) | campaign_entry(7, delay=3600) | beacon_entry([7], minor=3)
    )
    for second in range(6):
        staying = [detection(phone, seconds=second) for phone in PHONES]
        moving = detection("walker", seconds=second, minor=2 + second % 2)
        new = detection(f"new-{second}", seconds=second)
        unknown = detection("phone-0", seconds=second, minor=99)
        await trigger.push(*staying, moving, unknown, b"no json", new)
    assert trigger.worker.position.offset == 72
    assert len(await trigger.left("notifications")) == len(PHONES) + 7
    assert len(await trigger.left("dead-letters")) == 6
    counts = {
        reason: trigger.count("detections_total", reason=reason)
        for reason in ("granted", "throttled", "unknown_beacon")
    }
    assert counts == {"granted": 15, "throttled": 45, "unknown_beacon": 6}
    assert trigger.count("decisions_total", reason="throttled") == 45
    assert trigger.count("claims_total", outcome="held") == 45
    # Each of the three triples is read from Redis once.
    assert trigger.count("index_lookups_total", layer="process", outcome="hit") == 66 - 3
    if trigger.role.intake.filter is not None:
        assert undecoded(trigger) >= 4 * len(PHONES)


async def test_a_batch_with_devices_that_stay_has_good_records(trigger: PushedTrigger) -> None:
    """So its dead letters do not stop the role, however many there are."""
    await trigger.write_index(beacon_entry([7]) | campaign_entry(7, delay=3600))
    await trigger.push(detection())
    await trigger.push(detection(seconds=1))
    limit = trigger.role.intake.decoders[trigger.partition.topic].limit
    assert limit is not None
    await trigger.push(b"no json")
    assert limit._failing
    await trigger.push(detection(seconds=2), b"no json", detection(seconds=3))
    assert not limit._failing
    assert undecoded(trigger) == (3 if trigger.role.intake.filter else 0)


async def test_visits_are_followed_alike(trigger: PushedTrigger) -> None:
    """As by a book that sees one detection after the other, whatever comes in one batch."""
    await trigger.write_index(
        rules_entry(tracks_visits=True)
        | (beacon_entry([7, 8], reach=Zone.NEAR) | beacon_entry([7], minor=3, id=2))
        | (campaign_entry(7, delay=3600) | campaign_entry(8, on="dwell", dwell_minutes=1))
    )
    dice, values = random.Random(5), list[bytes]()
    for number in range(2400):
        phone, minor = dice.randrange(len(PHONES)), dice.choice((2, 2, 3))
        signal: dict[str, Any] = {"proximity": dice.choice((1, 2))}
        if phone % 2:
            signal = {"proximity": None, "rssi": dice.choice((-50, -60, -72, -80, -95))}
        if number % 800 < 500:  # then all are silent for 37 s
            values.append(detection(PHONES[phone], seconds=number / 8, minor=minor, **signal))
    trigger.now += 299
    records, index = trigger.records(values), trigger.role.intake.index
    expected, book = Counter[tuple[Any, ...]](), VisitBook()
    for each in records:
        found = decode_record(each, trigger.settings.path_loss_exponent)
        place = (await index.resolve({found.key}, 0))[found.key] if found.key else None
        seen = observation(found, place, trigger.now, 300, trigger.settings.path_loss_exponent)
        assert place is not None
        assert seen is not None
        for event in book.observe((1, found.message.device.udid), place.visited, seen):
            visit = event.visit
            expected[str(event.id), event.cause, visit.detections, visit.rssi_max] += 1
    while records:
        count = dice.randrange(1, 400)
        trigger.worker.offer(records[:count])
        await trigger.until_finished()
        records = records[count:]
    bodies = await trigger.sent("presence")
    assert expected == Counter(
        (each["id"], each.get("cause"), each["detections"], each.get("rssi_max")) for each in bodies
    )
    kinds = Counter((each["type"], each.get("cause")) for each in bodies)
    assert min(kinds[kind] for kind in MOMENTS) > 3
    if trigger.role.intake.filter is not None:
        assert undecoded(trigger) > len(values) * 0.8
