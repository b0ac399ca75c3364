"""The counts of decisions and messages: in the metrics, and by company and day in Redis."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest

from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics
from engine.redis.figures import FigureStore
from engine.trigger import decision_counts
from engine.trigger.decision_counts import DecisionCounter
from rules.model import DayFigures, Reason
from tests.redis.index_writer import beacon_entry, campaign_entry, connector_entry
from tests.rules.records import campaign, venue
from tests.trigger.pushed import NOW, PushedTrigger, detection
from tests.trigger.samples import granted, written

MOMENT = datetime.fromtimestamp(NOW / 1000, UTC)
SENT, HELD = ((1, reason) for reason in (Reason.GRANTED, Reason.THROTTLED))
REQUESTED, OFF = (2, Reason.GRANTED), (3, Reason.INACTIVE)


@pytest.fixture
async def counting(trigger: PushedTrigger) -> PushedTrigger:
    """At beacon 2 a campaign once an hour, one of a connector and one that is off; a beacon of
    another company is 4; 5 is off."""
    other = venue(id=2, company_id=2)
    fields = beacon_entry([1, 2, 3], 2) | beacon_entry([5], 4, id=4, venue=other)
    fields |= campaign_entry(1, delay=3600) | campaign_entry(3, active=False) | campaign_entry(5)
    fields |= campaign_entry(2, format="connector", content=None)
    fields |= beacon_entry([1], 5, active=False)
    await trigger.write_index(fields | connector_entry("https://shop.example/"))
    return trigger


async def figures(trigger: PushedTrigger, company: int = 1) -> DayFigures:
    """The figures in Redis after the process has ended."""
    task = asyncio.create_task(trigger.role.intake.counter.run())
    await asyncio.sleep(0)
    await cancel([task])
    store = FigureStore(**trigger.stores.redis_options)
    found = await store.read(company, MOMENT.date(), MOMENT.date())
    return found.get(MOMENT.date(), DayFigures())


async def test_each_detection_and_each_campaign_is_counted_once(counting: PushedTrigger):
    far, other = detection(proximity=3), detection(minor=4)
    await counting.push(detection(), detection(seconds=1), far, far, other, detection(minor=99))
    counting.worker = counting.assigned()  # it remembers no claims: Redis denies
    await counting.push(detection(seconds=2), detection("second"), detection(minor=5))
    found = await figures(counting)
    assert found.campaigns == {SENT: 2, HELD: 2, REQUESTED: 4, OFF: 4}
    assert found.reasons == {
        Reason.GRANTED: 6,
        Reason.THROTTLED: 2,
        Reason.INACTIVE: 4,
        Reason.TOO_FAR: 2,
        Reason.INACTIVE_BEACON: 1,
    }
    others = await figures(counting, company=2)
    assert others.reasons == {Reason.GRANTED: 1}
    assert others.campaigns == {(5, Reason.GRANTED): 1}
    # As the metrics have it.
    for reason, count in found.reasons.items():
        both = count + others.reasons[reason]
        assert counting.count("decisions_total", reason=reason.value) == both
    assert counting.count("detections_total", reason="granted") == 5
    assert counting.count("claims_total", outcome="denied") == 2
    assert counting.count("notifications_total", format="template") == 3
    assert counting.count("connector_handovers_total") == 4


async def test_of_a_large_batch_a_part_stands_for_all(counting: PushedTrigger):
    await counting.push(detection())
    await counting.push(*[detection(seconds=1, proximity=2)] * 1600)
    await counting.push(*[detection(seconds=2), detection(proximity=3)] * 800)
    found = await figures(counting)
    assert (found.reasons[Reason.THROTTLED], found.reasons[Reason.TOO_FAR]) == (2400, 800)
    assert found.campaigns[HELD] == pytest.approx(2400, rel=0.1)


async def test_a_flood_of_different_decisions_is_bounded(
    counting: PushedTrigger, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(decision_counts, "_MOST_WAITING", 3)
    monkeypatch.setattr(decision_counts, "_MOST_CAMPAIGNS", 30)
    fields: dict[str, bytes] = {}
    for minor in range(10, 50):
        fields |= beacon_entry([3], minor, id=minor, venue=venue(id=minor, company_id=minor))
    await counting.write_index(fields)
    await counting.push(*(detection(minor=minor) for minor in range(10, 50)))
    found = [await figures(counting, company) for company in range(10, 50)]
    assert [each.reasons[Reason.INACTIVE] for each in found] == [1] * 40
    assert sum(each.campaigns[OFF] for each in found) == 30
    assert counting.count("figures_dropped_total") == 10


def test_a_batch_of_latencies_is_what_each_of_them_would_be():
    values = [0.0, 0.005, 0.0050001, 0.3, 0.3, 300.0, 300.1, 4000.0]
    one, other = Metrics(), Metrics()
    for value in values:
        one.latency.observe(value)
    other.latency.observe_counts(Counter(values))
    assert histogram(one) == histogram(other)
    # A phone whose clock is fast adds nothing.
    messages = written(granted(campaign(), campaign(format="html")))
    at = messages[0].decided.detected_at
    counter = DecisionCounter(metrics=other, store=mock.Mock())
    counter.count_sent(messages, at + 2.5)
    counter.count_sent(messages, at - 60)
    added = histogram(other)["sum"].expected - sum(values)
    assert added == pytest.approx(2 * 2.5)


def histogram(metrics: Metrics) -> dict[str, Any]:
    return {
        sample.name.rpartition("_")[2] + sample.labels.get("le", ""): pytest.approx(sample.value)
        for family in metrics.latency.collect()
        for sample in family.samples
    }
