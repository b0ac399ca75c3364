"""The decisions that a trigger stores: each new outcome once, no repeats, at a bounded cost."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine.process.lifecycle import cancel
from engine.redis.decisions import DecisionStore
from engine.redis.devices import DeviceKey
from engine.trigger.decision_feed import DecisionFeed
from engine.wiring.parts import build_decision_store
from rules.model import StoredDecision, Zone
from tests.redis.index_writer import beacon_entry, campaign_entry
from tests.rules.records import venue
from tests.servers.waiting import eventually
from tests.trigger.pushed import NOW, PushedTrigger, detection, pushed_trigger

AT = NOW / 1000


@pytest.fixture
async def noting(trigger: PushedTrigger) -> PushedTrigger:
    """Campaign 1 once an hour at the beacons 2 and 3, 2 never; a beacon of another company is 4."""
    other = venue(id=2, company_id=2)
    fields = beacon_entry([1, 2], 2) | beacon_entry([1], 3, id=3, active=True)
    fields |= beacon_entry([5], 4, id=4, venue=other) | campaign_entry(5)
    fields |= campaign_entry(1, delay=3600) | campaign_entry(2, active=False)
    await trigger.write_index(fields)
    return trigger


def notes_of(trigger: PushedTrigger) -> DecisionFeed:
    return trigger.role.intake.feed


async def written(trigger: PushedTrigger) -> DecisionStore:
    """Collected decisions are written at the latest when the process ends."""
    task = asyncio.create_task(notes_of(trigger).run())
    await asyncio.sleep(0)
    await cancel([task])
    return build_decision_store(trigger.settings, trigger.redis)


async def kept(
    trigger: PushedTrigger, udid: str = "phone", company: int = 1
) -> list[StoredDecision]:
    """The stored decisions, the oldest first."""
    store = await written(trigger)
    return (await store.read(DeviceKey(company, udid)))[::-1]


async def reasons(trigger: PushedTrigger, udid: str = "phone", company: int = 1) -> list[str]:
    return [each.reason for each in await kept(trigger, udid, company)]


def far(**more: Any) -> bytes:
    return detection(proximity=3, **more)


async def test_a_grant_and_what_follows_it_once(noting: PushedTrigger):
    await noting.push(*(detection(seconds=n) for n in range(5)))
    await noting.push(*(detection(seconds=n) for n in range(5, 90)))
    await noting.push(detection(seconds=90))
    assert await kept(noting) == [
        StoredDecision(AT, AT, 1, Zone.IMMEDIATE, "granted", {"granted": [1], "inactive": [2]}),
        StoredDecision(
            AT + 1, AT, 1, Zone.IMMEDIATE, "throttled", {"throttled": [1], "inactive": [2]}
        ),
    ]


async def test_each_beacon_and_each_outcome_is_stored_once(noting: PushedTrigger):
    await noting.push(detection())
    for at in (1, 2, 3):
        both = detection(seconds=at), far(seconds=at)
        others = detection(minor=3, seconds=at), far(minor=3, seconds=at), detection(minor=99)
        await noting.push(*both, *others)
    assert await reasons(noting) == ["granted", "throttled", "too_far", "throttled", "too_far"]
    assert [each.beacon for each in await kept(noting)] == [1, 1, 1, 3, 3]


async def test_after_the_next_grant_it_is_stored_again(noting: PushedTrigger):
    await noting.push(detection())
    await noting.push(detection(seconds=1))
    noting.now += 3601
    await noting.push(detection(seconds=3601))
    await noting.push(detection(seconds=3602))
    assert await reasons(noting) == ["granted", "throttled"] * 2


async def test_a_claim_that_redis_denies_is_noted_as_throttled(noting: PushedTrigger):
    await noting.push(detection())
    noting.worker = noting.assigned()  # it remembers no claims
    await noting.push(detection(seconds=1))
    await noting.push(detection(seconds=2))
    found = await kept(noting)
    assert [each.reason for each in found] == ["granted", "throttled"]
    assert found[1].campaigns == {"throttled": [1], "inactive": [2]}


async def test_repeated_decisions_are_noted_at_intervals(noting: PushedTrigger):
    for minutes in (0, 10, 31, 40, 62, 93):
        noting.now = AT + minutes * 60
        await noting.push(far(seconds=minutes * 60))
    found = await kept(noting)
    assert [(each.detected_at - AT) / 60 for each in found] == [0, 62]


async def test_a_flood_of_devices_costs_no_more_than_its_budget(noting: PushedTrigger):
    udids = [f"device {number}" for number in range(600)]
    await noting.push(*(detection(udid) for udid in udids))
    noting.now += 1
    await noting.push(*(detection(udid, seconds=1) for udid in udids))
    store = await written(noting)
    found = [len(await store.read(DeviceKey(1, udid))) for udid in udids]
    assert 0 < sum(found) <= 500
    noting.now += 1
    await noting.push(detection("late", seconds=2))
    assert await reasons(noting, "late") == ["granted"]


async def test_of_many_detections_that_come_closely_some_are_checked(noting: PushedTrigger):
    await noting.push(*[far(udid="anna")] * 250)
    await noting.push(*[far(udid="ben")] * 250)
    noting.now += 0.06
    await noting.push(*[far(udid="carl")] * 3)
    await noting.push(*[far(udid="dora")] * 3)
    listed = [await reasons(noting, udid) for udid in ("anna", "ben", "carl", "dora")]
    assert listed == [["too_far"], [], ["too_far"], ["too_far"]]


@pytest.fixture
async def silent(
    embedded_kafka: str, embedded_redis_url: str, sqlite_url: str, topic_prefix: str
) -> AsyncIterator[PushedTrigger]:
    async with pushed_trigger(
        embedded_kafka, embedded_redis_url, sqlite_url, topic_prefix, recent_decisions=0
    ) as pushed:
        yield pushed


async def test_where_nothing_is_to_be_kept_nothing_is(silent: PushedTrigger):
    await silent.write_index(beacon_entry([1]) | campaign_entry(1))
    await silent.push(detection())
    assert not [key async for key in silent.redis.scan_iter("*decisions*")]


class UnansweringStore(DecisionStore):
    """A store on a Redis that hangs, and then fails."""

    def __init__(self, trigger: PushedTrigger) -> None:
        super().__init__(redis=trigger.redis, prefix="none:", most=1, deadline=5.0)
        self.requested = 0
        self.fails = asyncio.Event()

    async def keep(self, _decisions: Any) -> None:
        self.requested += 1
        await self.fails.wait()
        raise TimeoutError


async def test_no_batch_waits_for_its_notes(noting: PushedTrigger):
    notes, store = notes_of(noting), UnansweringStore(noting)
    good, notes._store = notes._store, store
    task = asyncio.create_task(notes.run())
    await noting.push(detection())
    await eventually(lambda: store.requested == 1, what="it is written")
    await noting.push(detection("other"))
    assert len(await noting.left("notifications")) == 2
    store.fails.set()
    await eventually(lambda: store.requested == 2, what="the next is written")
    await eventually(lambda: noting.count("redis_errors_total") >= 2, what="both have failed")
    notes._store = good
    await noting.push(detection("third"))
    await cancel([task])
    assert await reasons(noting, "third") == ["granted"]
