"""Decisions of a trigger on their way to watchers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine.process.lifecycle import cancel
from engine.redis.tail_store import TailedDecision, TailFilter, TailStore, WatchedTail
from engine.trigger.decision_tail import DecisionTail, Watcher, share_room
from tests.redis.index_writer import PREFIX, beacon_entry, campaign_entry
from tests.rules.records import UUID, venue
from tests.servers.waiting import eventually
from tests.trigger.pushed import PushedTrigger, detection


class Watching:
    """A watcher of a trigger."""

    def __init__(self, trigger: PushedTrigger, name: str = "w") -> None:
        self.trigger = trigger
        self.store = TailStore(redis=trigger.redis, prefix=PREFIX, deadline=5.0)
        self.place = WatchedTail(name)

    async def begin(self, beat: int = 1, **wanted: Any) -> "Watching":
        await self.store.watch(self.place.watcher, TailFilter(beat, **wanted))
        tail, name = tail_of(self.trigger), self.place.watcher
        await eventually(lambda: name in tail._watchers, what="the trigger knows")
        return self

    async def next(self, count: int) -> list[TailedDecision]:
        found: list[TailedDecision] = []
        async with asyncio.timeout(30):
            while len(found) < count:
                more, self.place = await self.store.read(self.place)
                found += more
        assert len(found) == count
        return found


def tail_of(trigger: PushedTrigger) -> DecisionTail:
    return trigger.role.intake.feed.tail


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


async def test_campaigns_that_fire_are_sampled_and_counted(watched: PushedTrigger):
    watching = await Watching(watched).begin(company=1)
    await watched.push(*(detection(f"device {number}") for number in range(50)))
    first = await watching.next(20)
    assert {each.reason for each in first} == {"granted"}
    assert {each.left_out for each in first} == {0}
    await watched.push(detection("late"))
    (last,) = await watching.next(1)
    assert last.left_out == 30


def test_all_watchers_share_a_bound():
    watchers = [Watcher(TailFilter(1, company), 0.0) for company in range(100)]
    share_room(watchers)
    assert {each.most for each in watchers} == {20}
    shown = TailedDecision(0.0, 0.0, 1, "", "", 0, "too_far", [], 0)
    for each in watchers[:40]:
        each.gathered = [shown]
    share_room(watchers)
    assert {each.most for each in watchers} == {4}
    for each in watchers:
        each.gathered = [shown]
    share_room(watchers * 10)
    assert {each.most for each in watchers} == {1}


async def test_a_watcher_without_heartbeats_gets_nothing(watched: PushedTrigger):
    dead = await Watching(watched, "gone").begin()
    here = await Watching(watched, "here").begin()
    tail = tail_of(watched)
    tail._watchers["gone"].beat_at -= 10
    await eventually(lambda: "gone" not in tail._watchers, what="it is taken for gone")
    await watched.push(detection("anna"))
    assert len(await here.next(1)) == 1
    assert (await dead.store.read(dead.place))[0] == []


async def test_killed_watchers_take_no_places(watched: PushedTrigger):
    """Thousands of them, whose names come first."""
    killed = {f"0{number}": TailFilter(1) for number in range(3000)}
    found = killed | {f"1{number}": TailFilter(1) for number in range(10)}
    tail, now = tail_of(watched), 1000.0
    for beat in range(40):
        dead = tail._note_watchers(found, now)
        assert len(tail._seen) <= 1000
        assert len(tail._watchers) <= 8
        now += 2.0
        for name in dead:
            assert name in killed
            del found[name]
        found |= {f"1{number}": TailFilter(2 + beat) for number in range(10)}
        if not killed.keys() & found.keys():
            break
    tail._note_watchers(found, now)
    assert sorted(tail._watchers) == [f"1{number}" for number in range(8)]


async def test_one_that_was_killed_is_forgotten_in_redis(watched: PushedTrigger):
    dead = await Watching(watched, "gone").begin()
    tail_of(watched)._seen["gone"].beat_at -= 10

    async def is_forgotten() -> bool:
        return await dead.store.watchers() == {}

    await eventually(is_forgotten, deadline=30, what="the hash has it no more")
    # One that was only stopped is there again with its next sign of life.
    assert await dead.store.watch("gone", TailFilter(2)) == 1
    await dead.begin(beat=3)


async def test_without_watchers_no_decisions_are_collected(watched: PushedTrigger):
    watching = await Watching(watched).begin()
    await watching.store.leave("w")
    await eventually(lambda: not tail_of(watched)._watchers, what="the trigger knows")
    await watched.push(detection("anna"))
    assert not [key async for key in watched.redis.scan_iter(f"{PREFIX}watched*")]
