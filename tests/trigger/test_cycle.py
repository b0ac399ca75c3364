"""A cycle takes detections of several partitions and companies together."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka.partitioner import murmur2

from engine.redis.claims import REQUEST_BYTES
from engine.trigger import cycle as cycle_module
from tests.redis.index_writer import beacon_entry, campaign_entry
from tests.servers.waiting import eventually
from tests.trigger.pushed import PushedTrigger, detection

PARTITIONS = 4
FIRST = "first"


class Pair:
    """Two partitions of the trigger."""

    def __init__(self, trigger: PushedTrigger) -> None:
        self.trigger = trigger
        self.workers = [trigger.assigned(number) for number in range(2)]
        self._before = self._count()

    @property
    def claims(self) -> Any:
        """Those of the cycle, for a test to replace `take`."""
        return self.trigger.role.cycle.claims

    def offer(self, *udids: str, seconds: float = 0) -> None:
        """A detection of each device: of the first on the first partition, and so on."""
        for number, udid in enumerate(udids):
            self.offer_to(number, udid, seconds=seconds)

    def offer_to(self, number: int, *udids: str, seconds: float = 0) -> None:
        """Detections of devices on one partition."""
        values = [detection(udid, seconds=seconds) for udid in udids]
        self.workers[number].offer(self.trigger.records(values, number))

    async def until_finished(self, *numbers: int) -> None:
        workers = [self.workers[number] for number in numbers or range(2)]
        await self.trigger.until_finished(*workers)

    async def sent(self) -> list[str]:
        """The udids of the notifications, but for the first one."""
        bodies = await self.trigger.sent()
        assert len({each["id"] for each in bodies}) == len(bodies), "nothing was sent twice"
        found = (each["device"]["udid"] for each in bodies)
        return sorted(udid for udid in found if udid != FIRST)

    def cycles(self) -> float:
        """The cycles that took claims."""
        return self._count() - self._before

    def _count(self) -> float:
        return self.trigger.count("batch_seconds_count", role="trigger", step="claim")


@pytest.fixture
async def pair(trigger: PushedTrigger) -> AsyncIterator[Pair]:
    await trigger.write_index(beacon_entry([7]) | campaign_entry(7, delay=60))
    await trigger.push(detection(FIRST))  # then the process has the beacon in its cache
    await trigger.worker.abandon()
    made = Pair(trigger)
    await eventually(
        lambda: all(each._moved._waiters for each in made.workers), what="both wait for records"
    )
    yield made
    for worker in made.workers:
        await worker.abandon()
    role = trigger.role
    assert (role.in_flight.held, role.claim_memory.held) == (0, 0)
    assert not role.cycle._queues
    assert role.cycle._running == role.cycle._sends == set()
    assert role.cycle._unacknowledged == 0


async def test_one_cycle_is_for_all_partitions(pair: Pair) -> None:
    pair.offer("a", "b")
    await pair.until_finished()
    assert pair.cycles() == 1
    assert await pair.sent() == ["a", "b"]
    assert [worker.position.offset for worker in pair.workers] == [2, 3]
    assert pair.trigger.count("detection_to_notification_seconds_count") == 3
    pair.offer("a", "b", seconds=1)
    await pair.until_finished()
    assert pair.cycles() == 1, "each partition remembers its claims"


async def test_only_the_same_device_waits_for_an_unanswered_call(pair: Pair) -> None:
    asked, answered, take = list[list[str]](), asyncio.Event(), pair.claims.take

    async def delayed(devices: Any, *given: Any) -> Any:
        asked.append([each.udid for each in devices])
        if len(asked) == 1:
            await answered.wait()
        return await take(devices, *given)

    pair.claims.take = delayed
    pair.offer("a")
    await eventually(lambda: len(asked) == 1, what="Redis is asked")
    pair.offer("b", "a")
    await eventually(lambda: len(asked) == 2, what="another device is claimed")
    assert asked == [["a"], ["b"]]
    answered.set()
    await pair.until_finished()
    assert await pair.sent() == ["a", "b"]


async def test_the_bound_of_a_cycle_is_for_all_its_partitions(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cycle_module, "_MOST_CAMPAIGNS", 3)
    monkeypatch.setattr(cycle_module, "_LEAST_SHARE", 1)
    asked, take = list[int](), pair.claims.take

    async def noted(devices: Any, *given: Any) -> Any:
        asked.append(sum(len(each.packed) for each in devices) // REQUEST_BYTES)
        return await take(devices, *given)

    pair.claims.take = noted
    for number in range(2):
        pair.offer_to(number, *(f"{number}-{each}" for each in range(4)))
    await pair.until_finished()
    assert (max(asked), sum(asked)) == (3, 8)
    assert len(await pair.sent()) == 8


def held_up(owner: Any, name: str, *, after: bool) -> tuple[asyncio.Event, asyncio.Event]:
    """A method that waits, before or after its work: an event that says so, one that ends it."""
    waits, proceed, inner = asyncio.Event(), asyncio.Event(), getattr(owner, name)

    async def slowly(*given: Any) -> Any:
        found = await inner(*given) if after else None
        waits.set()
        await proceed.wait()
        return found if after else await inner(*given)

    setattr(owner, name, slowly)
    return waits, proceed


@pytest.mark.parametrize("step", ["claims", "publish"])
async def test_a_partition_that_is_lost_leaves_the_cycle_to_the_other(
    pair: Pair, step: str
) -> None:
    cycle = pair.trigger.role.cycle
    if step == "claims":
        waits, proceed = held_up(pair.claims, "take", after=True)
    else:
        waits, proceed = held_up(cycle.letters, "publish_or_dead_letter", after=False)
    pair.offer("a", "b")
    async with asyncio.timeout(90):
        await waits.wait()
    await pair.workers[0].abandon()
    proceed.set()
    await pair.until_finished(1)
    assert pair.workers[1].position.offset == 3
    assert pair.workers[0].position.offset != 2, "a lost partition does not move"
    assert pair.cycles() == 1
    assert await pair.sent() == (["b"] if step == "claims" else ["a", "b"])
    held = pair.workers[1].remembered
    assert list(map(len, held.by_device.values())) == [2]
    assert pair.trigger.role.claim_memory.held == 2 + 3, "see ClaimMemory"
    # The partition comes back.
    pair.workers[0] = pair.trigger.assigned()
    pair.offer_to(0, "c")
    await pair.until_finished()
    assert "c" in await pair.sent()


async def test_a_partition_that_comes_while_the_last_one_leaves_goes_on(pair: Pair) -> None:
    """The end of the old cycle takes nothing of the new partition with it."""
    take, waits, leaving, proceed = pair.claims.take, *(asyncio.Event() for _ in range(3))

    async def ends_slowly(*_: Any) -> None:
        try:
            waits.set()
            await asyncio.Event().wait()
        finally:
            leaving.set()
            await proceed.wait()

    pair.claims.take = ends_slowly
    pair.offer("a")
    await pair.workers[1].abandon()
    async with asyncio.timeout(90):
        await waits.wait()
        pair.claims.take = take
        last = asyncio.create_task(pair.workers[0].abandon())
        await leaving.wait()
    pair.workers[1] = pair.trigger.assigned(1)
    pair.offer_to(1, "b")
    await pair.until_finished(1)
    proceed.set()
    await last
    assert await pair.sent() == ["b"]


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
    assert pair.workers[0].position.offset <= 1
    pair.offer_to(1, udid_on(1, "later"))
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
