"""Decisions of a trigger on their way to watchers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.reports import LiveDecision
from engine.process.lifecycle import cancel
from engine.redis.decisions import TailFilter, TailStore
from engine.trigger.decision_feed import DecisionFeed
from tests.redis.index_writer import PREFIX, beacon_entry, campaign_entry
from tests.rules.records import UUID, venue
from tests.servers.waiting import eventually
from tests.trigger.pushed import PushedTrigger, detection


class Watching:
    """A watcher of a trigger."""

    def __init__(self, trigger: PushedTrigger, name: str = "w") -> None:
        self.trigger = trigger
        self.store = TailStore(redis=trigger.redis, prefix=PREFIX, deadline=5.0)
        self.name, self.after = name, "0-0"

    async def begin(self, **wanted: Any) -> "Watching":
        tail, self.wanted = tail_of(self.trigger), TailFilter(self.name, **wanted)
        await self.store.watch(self.wanted)
        await eventually(lambda: self.wanted in tail._watchers, what="the trigger knows")
        return self

    async def next(self, count: int) -> list[LiveDecision]:
        found: list[LiveDecision] = []
        async with asyncio.timeout(90):
            while len(found) < count:
                self.after, more = await self.store.read(self.name, self.after)
                found += more
        assert len(found) == count
        return found


def tail_of(trigger: PushedTrigger) -> DecisionFeed:
    return trigger.role.intake.feed


@pytest.fixture
async def watched(trigger: PushedTrigger) -> AsyncIterator[PushedTrigger]:
    fields = beacon_entry([1, 2], 2) | beacon_entry([5], 4, id=4, venue=venue(id=2, company_id=2))
    fields |= campaign_entry(1, delay=3600) | campaign_entry(2, name="Late", active=False)
    await trigger.write_index(fields | campaign_entry(5))
    task = asyncio.create_task(tail_of(trigger).run())
    yield trigger
    await cancel([task])


async def test_decisions_are_shown_without_the_device(watched: PushedTrigger):
    watching = await Watching(watched).begin()
    await watched.push(detection("anna"), detection("anna", seconds=1, proximity=3))
    await watched.push(detection("anna", seconds=2), detection("anna", minor=99))
    found = {each.reason: each for each in await watching.next(4)}
    granted, throttled = found["granted"], found["throttled"]
    refused, unknown = found["too_far"], found["unknown_beacon"]
    assert (granted.company, granted.venue, granted.beacon) == (1, "Library", "Desk")
    assert granted.campaigns == [(1, "Reading room", "granted"), (2, "Late", "inactive")]
    assert throttled.campaigns == [(1, "Reading room", "throttled"), (2, "Late", "inactive")]
    assert refused.campaigns == []
    assert (unknown.company, unknown.beacon) == (None, f"{UUID}:1:99")
    key = f"{PREFIX}watched:w"
    assert b"anna" not in repr(await watched.redis.xrange(key)).encode()


@pytest.mark.parametrize(
    ("wanted", "reasons"),
    [
        ({"company": 2}, ["granted"]),
        ({"campaign": "late"}, ["granted", "throttled", "too_far"]),
        ({"campaign": "1", "reason": "throttled"}, ["throttled"]),
        ({"reason": "inactive"}, ["granted", "throttled"]),
        ({"reason": "unknown_beacon"}, ["unknown_beacon"]),
        ({"udid": "ben"}, ["too_far"]),
    ],
)
async def test_only_requested_decisions_are_shown(
    watched: PushedTrigger, wanted: dict[str, Any], reasons: list[str]
):
    watching = await Watching(watched).begin(**wanted)
    await watched.push(detection("anna"), detection("ben", proximity=3))
    await watched.push(detection("anna", seconds=1), detection("carl", minor=4))
    await watched.push(detection("anna", minor=99))
    found = await watching.next(len(reasons))
    assert sorted(each.reason for each in found) == reasons


async def test_a_flood_is_sampled_and_counted(watched: PushedTrigger):
    watching = await Watching(watched).begin()
    far = [detection(f"device {number}", proximity=3) for number in range(300)]
    await watched.push(*far)
    first = await watching.next(20)
    assert {each.left_out for each in first} == {0}
    await watched.push(detection("late", proximity=3))
    (last,) = await watching.next(1)
    assert last.left_out == 280


async def test_a_flood_of_one_company_hides_no_other(watched: PushedTrigger):
    """For a full watcher decisions are only counted; a quiet company's watcher gets all."""
    loud = await Watching(watched, "loud").begin(company=1)
    quiet = await Watching(watched, "quiet").begin(company=2)
    pushed = [detection(f"device {number}", proximity=3) for number in range(2000)]
    pushed[1500] = detection("anna", minor=4, proximity=3)
    await watched.push(*pushed)
    assert [each.company for each in await quiet.next(1)] == [2]
    assert len(await loud.next(20)) == 20
    await watched.push(detection("late", proximity=3))
    (last,) = await loud.next(1)
    # Of very many it is known about how many they were.
    assert last.left_out == pytest.approx(1979, rel=0.05)


async def test_all_watchers_share_a_bound(trigger: PushedTrigger):
    tail = tail_of(trigger)
    tail._serve([TailFilter(str(number)) for number in range(40)])
    await trigger.write_index({})
    await trigger.push(detection("anna"))
    await tail._write_watched()
    assert {each.most for each in tail._watchers.values()} == {4}
    await tail._write_watched()
    assert {each.most for each in tail._watchers.values()} == {20}


async def test_without_watchers_no_decisions_are_collected(watched: PushedTrigger):
    watching = await Watching(watched).begin()
    await watching.store.leave(watching.wanted)
    await eventually(lambda: not tail_of(watched)._watchers, what="the trigger knows")
    await watched.push(detection("anna"))
    assert not [key async for key in watched.redis.scan_iter(f"{PREFIX}watched*")]
