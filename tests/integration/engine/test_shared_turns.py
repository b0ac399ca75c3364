"""Partitions whose detections of one company leave in shared turns."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine.kafka.murmur2 import murmur2
from engine.trigger import pipeline as pipeline_module
from tests.contract.index_writer import beacon_entry, campaign_entry
from tests.integration.engine.pushed import PushedTrigger, detection
from tests.servers.waiting import eventually

PARTITIONS = 4
FIRST = "first"


class Pair:
    """Two partitions of the trigger."""

    def __init__(self, trigger: PushedTrigger) -> None:
        self.trigger = trigger
        self.workers = [trigger.assigned(number) for number in range(2)]
        self._before = self._turns()

    def offer(self, *udids: str) -> None:
        """A detection of each device: of the first on the first partition, and so on."""
        for number, udid in enumerate(udids):
            self.workers[number].offer(self.trigger.records([detection(udid)], number))

    async def until_finished(self, *numbers: int) -> None:
        workers = [self.workers[number] for number in numbers or range(2)]
        await eventually(
            lambda: not any(each.pending for each in workers) or self._failed(),
            what="all is finished",
        )
        assert not self._failed()

    def _failed(self) -> list[BaseException]:
        return [each.failure for each in self.workers if each.failure is not None]

    async def sent(self) -> list[str]:
        """The udids of the notifications, but for the first one."""
        left = await self.trigger.left("notifications")
        udids = {json.loads(each.value or b"")["id"]: "" for each in left}
        assert len(udids) == len(left), "nothing was sent twice"
        found = (json.loads(each.value or b"")["device"]["udid"] for each in left)
        return sorted(udid for udid in found if udid != FIRST)

    def turns(self) -> float:
        """The turns that took claims."""
        return self._turns() - self._before

    def _turns(self, step: str = "claim") -> float:
        return self.trigger.count("batch_seconds_count", role="trigger", step=step)


@pytest.fixture
async def pair(trigger: PushedTrigger) -> AsyncIterator[Pair]:
    await trigger.write_index(beacon_entry([7]) | campaign_entry(7, delay=60))
    await trigger.push(detection(FIRST))  # then the process has the beacon in its cache
    await trigger.worker.abandon()
    made = Pair(trigger)
    yield made
    for worker in made.workers:
        await worker.abandon()
    role = trigger.role
    assert (role.in_flight._held, role.claim_memory.held) == (0, 0)
    assert not role.company_turns._turn_of
    assert not role.company_turns._gathering


async def test_one_turn_is_for_all_partitions(pair: Pair) -> None:
    pair.offer("a", "b")
    await pair.until_finished()
    assert pair.turns() == 1
    assert await pair.sent() == ["a", "b"]
    assert [worker.done_offset for worker in pair.workers] == [2, 3]
    assert pair.trigger.count("detection_to_notification_seconds_count") == 3
    pair.offer("a", "b")
    await pair.until_finished()
    assert pair.turns() == 1, "each partition remembers its claims"


async def test_a_device_on_two_partitions_at_once_is_notified_once(pair: Pair) -> None:
    pair.offer("a", "a")
    await pair.until_finished()
    assert pair.turns() == 1
    assert await pair.sent() == ["a"]
    assert pair.trigger.count("decisions_total", reason="granted") == 2
    assert pair.trigger.count("decisions_total", reason="throttled") == 1
    pair.offer("a", "a")
    await pair.until_finished()
    assert pair.turns() == 1, "both remember the claim"


async def test_a_turn_whose_grants_are_all_denied_publishes_nothing(pair: Pair) -> None:
    pair.offer("a")
    await pair.until_finished()
    published = pair._turns("publish")
    pair.workers[1].offer(pair.trigger.records([detection("a", seconds=1)], 1))
    await pair.until_finished()
    assert pair.turns() == 2
    assert pair._turns("publish") == published
    assert await pair.sent() == ["a"]


async def test_the_bound_of_a_turn_is_for_all_its_partitions(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_module, "_GRANTS", 3)
    claims: Any = pair.trigger.role.pipeline.claims._claims
    asked, take_of_devices = list[int](), claims.take_of_devices

    async def noted(devices: Any, *given: Any) -> Any:
        asked.append(sum(len(each.positions) for each in devices))
        return await take_of_devices(devices, *given)

    monkeypatch.setattr(claims, "take_of_devices", noted)
    for number in range(2):
        values = [detection(f"{number}-{each}") for each in range(4)]
        pair.workers[number].offer(pair.trigger.records(values, number))
    await pair.until_finished()
    assert (max(asked), sum(asked)) == (3, 8)
    assert len(await pair.sent()) == 8


def held_up(owner: Any, name: str, *, after: bool) -> tuple[asyncio.Event, asyncio.Event]:
    """A method that waits, before or after its work: an event that says so, one that ends it."""
    waits, proceed, inner = asyncio.Event(), asyncio.Event(), getattr(owner, name)

    async def wait() -> None:
        waits.set()
        await proceed.wait()

    async def slowly(*given: Any) -> Any:
        if after:
            found = await inner(*given)
            await wait()
            return found
        await wait()
        return await inner(*given)

    setattr(owner, name, slowly)
    return waits, proceed


@pytest.mark.parametrize("step", ["claims", "publish"])
async def test_a_partition_that_is_lost_leaves_the_turn_to_the_other(pair: Pair, step: str) -> None:
    pipeline = pair.trigger.role.pipeline
    if step == "claims":
        waits, proceed = held_up(pipeline.claims._claims, "take_of_devices", after=True)
    else:
        letters = pipeline.publish.letters
        waits, proceed = held_up(letters, "publish_or_dead_letter", after=False)
    pair.offer("a", "b")
    async with asyncio.timeout(10):
        await waits.wait()
    await pair.workers[0].abandon()
    assert pair.workers[0].done_offset != 2
    proceed.set()
    await pair.until_finished(1)
    assert pair.workers[1].done_offset == 3
    assert pair.turns() == 1
    assert await pair.sent() == (["b"] if step == "claims" else ["a", "b"])
    held = pair.workers[1]._remembered
    assert list(map(len, held.young.values())) == [2]
    assert pair.trigger.role.claim_memory.held == 2 + 3, "see ClaimMemory"
    # The partition comes back.
    pair.workers[0] = pair.trigger.assigned()
    pair.workers[0].offer(pair.trigger.records([detection("c")], 0))
    await pair.until_finished()
    assert "c" in await pair.sent()


async def test_a_partition_without_a_leader_holds_up_only_its_own(pair: Pair) -> None:
    producer: Any = pair.trigger.publisher._producer
    send_batch, leader = producer.send_batch, asyncio.Event()
    stuck, free = udid_on(0), udid_on(1)

    async def without_leader(builder: Any, topic: str, *, partition: int) -> Any:
        if partition == 0:
            await leader.wait()
        return await send_batch(builder, topic, partition=partition)

    producer.send_batch = without_leader
    pair.offer(stuck, free)
    await pair.until_finished(1)
    assert await pair.sent() == [free]
    assert pair.workers[0].pending == 1
    assert pair.workers[0].done_offset in (None, 1)
    pair.workers[1].offer(pair.trigger.records([detection(udid_on(1, "later"))], 1))
    await pair.until_finished(1)
    assert len(await pair.sent()) == 2
    leader.set()
    await pair.until_finished()
    assert stuck in await pair.sent()
    assert len(await pair.sent()) == 3


def udid_on(partition: int, begin: str = "phone") -> str:
    """A device whose notifications are on this partition."""
    names = (f"{begin}-{number}" for number in range(1000))
    return next(
        each for each in names if (murmur2(each.encode()) & 0x7FFFFFFF) % PARTITIONS == partition
    )
