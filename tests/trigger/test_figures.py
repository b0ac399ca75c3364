"""The figures of decisions, from records to the sums in Redis."""

import asyncio
from datetime import UTC, datetime

import pytest

from engine.process.lifecycle import cancel
from engine.redis.figures import FigureStore
from engine.wiring.parts import redis_options
from rules.model import CampaignReason, DayFigures, Reason
from tests.redis.index_writer import beacon_entry, campaign_entry, connector_entry
from tests.rules.records import venue
from tests.trigger.pushed import NOW, PushedTrigger, detection

MOMENT = datetime.fromtimestamp(NOW / 1000, UTC)
SENT, HELD = (CampaignReason(1, reason) for reason in (Reason.GRANTED, Reason.THROTTLED))
REQUESTED, OFF = CampaignReason(2, Reason.GRANTED), CampaignReason(3, Reason.INACTIVE)


@pytest.fixture
async def counting(trigger: PushedTrigger) -> PushedTrigger:
    """At beacon 2 a campaign once an hour, one of a connector and one that is off; a beacon of
    another company is 4."""
    other = venue(id=2, company_id=2)
    fields = beacon_entry([1, 2, 3], 2) | beacon_entry([5], 4, id=4, venue=other)
    fields |= campaign_entry(1, delay=3600) | campaign_entry(3, active=False) | campaign_entry(5)
    fields |= campaign_entry(2, format="connector", content=None)
    await trigger.write_index(fields | connector_entry("https://shop.example/"))
    return trigger


async def figures(trigger: PushedTrigger, company: int = 1) -> DayFigures:
    """The figures in Redis after the process has ended."""
    sums = trigger.role.intake.counter.sums
    if sums is not None:
        task = asyncio.create_task(sums.run())
        await asyncio.sleep(0)
        await cancel([task])
    store = FigureStore(**redis_options(trigger.settings, trigger.redis))
    found = await store.read(company, MOMENT.date(), MOMENT.date())
    return found.get(MOMENT.date(), DayFigures())


async def test_each_detection_and_each_campaign_is_counted_once(counting: PushedTrigger):
    far, other = detection(proximity=3), detection(minor=4)
    await counting.push(detection(), detection(seconds=1), far, far, other, detection(minor=99))
    counting.worker = counting.assigned()  # it remembers no claims: Redis denies
    await counting.push(detection(seconds=2), detection("second"))
    found = await figures(counting)
    assert found.detections == {MOMENT.hour: 6}
    # (A connector's notifications are counted by who publishes them.)
    assert found.notifications == {MOMENT.hour: 2}
    assert found.campaigns == {SENT: 2, HELD: 2, REQUESTED: 4, OFF: 4}
    assert found.reasons == {
        Reason.GRANTED: 6,
        Reason.THROTTLED: 2,
        Reason.INACTIVE: 4,
        Reason.TOO_FAR: 2,
    }
    others = await figures(counting, company=2)
    assert (others.detections, others.reasons) == ({MOMENT.hour: 1}, {Reason.GRANTED: 1})
    assert others.campaigns == {CampaignReason(5, Reason.GRANTED): 1}
    # As the metrics have it.
    for reason, count in found.reasons.items():
        both = count + others.reasons[reason]
        assert counting.count("decisions_total", reason=reason.value) == both


async def test_decisions_of_the_next_hour_count_for_that_hour(counting: PushedTrigger):
    await counting.push(detection(proximity=3))
    await figures(counting)
    counting.now += 3600
    await counting.push(detection(proximity=3), detection(proximity=3, seconds=3600))
    found = await figures(counting)
    assert found.detections == {MOMENT.hour: 1, MOMENT.hour + 1: 2}
