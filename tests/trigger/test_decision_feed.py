"""The decisions that a trigger shows: to watchers as they happen, and the last ones of devices,
each new outcome once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.reports import LiveDecision
from engine.process.lifecycle import cancel
from engine.redis.decisions import DecisionStore, TailFilter, TailStore
from engine.redis.devices import DeviceKey
from engine.trigger import decision_feed
from rules.model import StoredDecision, Zone
from tests.redis.index_writer import PREFIX, beacon_entry, campaign_entry
from tests.rules.records import UUID, venue
from tests.servers.waiting import eventually
from tests.trigger.conftest import MakeTrigger
from tests.trigger.pushed import NOW, PushedTrigger, detection

AT = NOW / 1000


class Watching:
    """A watcher of a trigger."""

    def __init__(self, trigger: PushedTrigger, name: str = "w") -> None:
        self.trigger = trigger
        self.store = TailStore(redis=trigger.redis, prefix=PREFIX, deadline=5.0)
        self.name, self.after = name, "0-0"

    async def begin(self, **wanted: Any) -> "Watching":
        self.wanted = TailFilter(self.name, **wanted)
        await self.store.watch(self.wanted)
        await eventually(self.is_known, what="the trigger knows")
        return self

    def is_known(self) -> bool:
        return self.wanted in self.trigger.role.intake.feed._watchers

    async def next(self, count: int) -> list[LiveDecision]:
        found: list[LiveDecision] = []
        async with asyncio.timeout(90):
            while len(found) < count:
                self.after, more = await self.store.read(self.name, self.after)
                found += more
        assert len(found) == count
        return found


class Feed:
    """A trigger whose feed of decisions runs."""

    def __init__(self, trigger: PushedTrigger) -> None:
        self.trigger, self.push = trigger, trigger.push
        self.task = asyncio.create_task(trigger.role.intake.feed.run())

    async def kept(self, udid: str = "phone") -> list[StoredDecision]:
        """The stored decisions, the oldest first. What is collected is written at the end."""
        await cancel([self.task])
        store = DecisionStore(most=10, **self.trigger.stores.redis_options)
        return (await store.read(DeviceKey(1, udid)))[::-1]

    async def reasons(self, udid: str = "phone") -> list[str]:
        return [each.reason for each in await self.kept(udid)]


@pytest.fixture
async def feed(trigger: PushedTrigger, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Feed]:
    """Campaign 1 once an hour at the beacons 2 and 3, 2 never; a beacon of another company is 4."""
    fields = beacon_entry([1, 2], 2) | beacon_entry([1], 3, id=3)
    fields |= beacon_entry([5], 4, id=4, venue=venue(id=2, company_id=2)) | campaign_entry(5)
    fields |= campaign_entry(1, delay=3600) | campaign_entry(2, name="Late", active=False)
    await trigger.write_index(fields)
    monkeypatch.setattr(decision_feed, "_POLL_SECONDS", 0.1)
    made = Feed(trigger)
    yield made
    await cancel([made.task])


def far(udid: str = "phone", **more: Any) -> bytes:
    return detection(udid, proximity=3, **more)


# The last decisions of devices


async def test_a_grant_and_each_outcome_after_it_is_stored_once(feed: Feed):
    await feed.push(*(detection(seconds=n) for n in range(90)))
    feed.trigger.worker = feed.trigger.assigned()  # it remembers no claims: Redis denies
    await feed.push(*(detection(seconds=n) for n in range(90, 95)))
    for seconds in (95, 96):
        await feed.push(far(seconds=seconds), detection(minor=3, seconds=seconds), detection("b"))
        await feed.push(detection(minor=99), detection("c", minor=4))
    feed.trigger.now += 3601
    await feed.push(detection(seconds=3601), detection(seconds=3602))
    found = await feed.kept()
    outcomes = {"granted": [1], "inactive": [2]}, {"throttled": [1], "inactive": [2]}
    assert found[:2] == [
        StoredDecision(AT, AT, 1, Zone.IMMEDIATE, "granted", outcomes[0]),
        StoredDecision(AT + 1, AT, 1, Zone.IMMEDIATE, "throttled", outcomes[1]),
    ]
    assert [(each.reason, each.beacon) for each in found[2:]] == [
        *(("too_far", 1), ("throttled", 3)),
        *(("granted", 1), ("throttled", 1)),
    ]


async def test_a_repeated_decision_is_stored_at_intervals(feed: Feed):
    for minutes in (0, 10, 31, 40, 62, 93):
        feed.trigger.now = AT + minutes * 60
        await feed.push(far(seconds=minutes * 60))
    assert [(each.detected_at - AT) / 60 for each in await feed.kept()] == [0, 62]


async def test_a_flood_costs_no_more_than_its_budget(feed: Feed):
    """Few of many new devices are stored, and of those that come closely a part is looked at."""
    udids = [f"device {number}" for number in range(600)]
    await feed.push(*map(detection, udids))
    await feed.push(*[far("anna")] * 250, *[far("ben")] * 250)
    store = DecisionStore(most=10, **feed.trigger.stores.redis_options)

    async def stored() -> int:
        return sum([bool(await store.read(DeviceKey(1, udid))) for udid in udids])

    await eventually(stored, what="a part is written")
    feed.trigger.now += 1
    await feed.push(*[far("carl")] * 3)
    assert await feed.reasons("carl") == ["too_far"]
    assert 0 < await stored() <= 250
    assert await feed.reasons("ben") == []


async def test_where_nothing_is_to_be_kept_nothing_is(trigger_with: MakeTrigger):
    trigger = await trigger_with(recent_decisions=0)
    await trigger.write_index(beacon_entry([1]) | campaign_entry(1))
    await trigger.push(detection())
    await cancel([asyncio.create_task(trigger.role.intake.feed.run())])
    assert not [key async for key in trigger.redis.scan_iter("*decisions*")]


async def test_no_batch_waits_for_the_feed(feed: Feed, monkeypatch: pytest.MonkeyPatch):
    """Redis hangs, and then fails; later decisions are stored again."""
    written, fails, keep = asyncio.Event(), asyncio.Event(), DecisionStore.keep

    async def hang(*_: Any) -> None:
        written.set()
        await fails.wait()
        raise TimeoutError

    monkeypatch.setattr(DecisionStore, "keep", hang)
    await feed.push(detection())
    async with asyncio.timeout(90):
        await written.wait()
    await feed.push(detection("other"))
    assert len(await feed.trigger.left("notifications")) == 2
    fails.set()
    errors = "redis_errors_total"
    await eventually(lambda: feed.trigger.count(errors) >= 2, what="both have failed")
    monkeypatch.setattr(DecisionStore, "keep", keep)
    await feed.push(detection("third"))
    assert await feed.reasons("third") == ["granted"]


# Decisions as they happen


async def test_decisions_are_shown_without_the_device(feed: Feed):
    watching = await Watching(feed.trigger).begin()
    await feed.push(detection("anna"), detection("anna", seconds=1, proximity=3))
    await feed.push(detection("anna", seconds=2), detection("anna", minor=99))
    found = {each.reason: each for each in await watching.next(4)}
    granted, throttled = found["granted"], found["throttled"]
    refused, unknown = found["too_far"], found["unknown_beacon"]
    assert (granted.company, granted.venue, granted.beacon) == (1, "Library", "Desk")
    assert granted.campaigns == [(1, "Reading room", "granted"), (2, "Late", "inactive")]
    assert throttled.campaigns == [(1, "Reading room", "throttled"), (2, "Late", "inactive")]
    assert refused.campaigns == []
    assert (unknown.company, unknown.beacon) == (None, f"{UUID}:1:99")
    stream = f"{PREFIX}watched:w"
    assert b"anna" not in repr(await feed.trigger.redis.xrange(stream)).encode()
    # Without watchers nothing is collected.
    await watching.store.leave(watching.wanted)
    await eventually(lambda: not watching.is_known())
    await feed.push(detection("ben"))
    assert not await feed.trigger.redis.exists(stream)


async def test_each_watcher_is_shown_what_it_wants(feed: Feed):
    wanted: list[tuple[dict[str, Any], list[str]]] = [
        ({"company": 2}, ["granted"]),
        ({"campaign": "late"}, ["granted", "throttled", "too_far"]),
        ({"campaign": "1", "reason": "throttled"}, ["throttled"]),
        ({"reason": "inactive"}, ["granted", "throttled"]),
        ({"reason": "unknown_beacon"}, ["unknown_beacon"]),
        ({"udid": "ben"}, ["too_far"]),
    ]
    watchers = [Watching(feed.trigger, f"w{number}") for number in range(len(wanted))]
    for watching, (fields, _) in zip(watchers, wanted, strict=True):
        await watching.begin(**fields)
    await feed.push(detection("anna"), far("ben"), detection("anna", seconds=1))
    await feed.push(detection("carl", minor=4), detection("anna", minor=99))
    for watching, (_, reasons) in zip(watchers, wanted, strict=True):
        found = await watching.next(len(reasons))
        assert sorted(each.reason for each in found) == reasons


async def test_a_flood_is_sampled_and_hides_no_other_company(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
):
    """For a full watcher decisions are only counted; a quiet company's watcher gets all."""
    monkeypatch.setattr(decision_feed, "_WRITE_SECONDS", 1.0)  # all is pushed before a write
    loud = await Watching(feed.trigger, "loud").begin(company=1)
    quiet = await Watching(feed.trigger, "quiet").begin(company=2)
    pushed = [far(f"device {number}") for number in range(2000)]
    pushed[1500] = far("anna", minor=4)
    await feed.push(*pushed)
    assert [each.company for each in await quiet.next(1)] == [2]
    assert {each.left_out for each in await loud.next(20)} == {0}
    await feed.push(far("late"))
    (last,) = await loud.next(1)
    # Of very many it is known about how many they were.
    assert last.left_out == pytest.approx(1979, rel=0.05)
