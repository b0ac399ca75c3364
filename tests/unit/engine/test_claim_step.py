"""How many devices one turn reads all claims of."""

from collections.abc import Container, Sequence
from typing import Any, cast

from engine.process.metrics import Metrics
from engine.redis.claim_wire import DeviceRequests
from engine.redis.claims import ClaimAnswers, Claims
from engine.trigger import grants as interpreted
from engine.trigger.claim_memory import ClaimMemory
from engine.trigger.claim_step import ClaimStep, GrantsOfLane
from tests.property.test_redelivery import BEGIN, NO_UPDATES, BruteForce, decoded


class Reading(BruteForce):
    """Notes which devices are read in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[set[str]] = []

    async def take_of_devices(
        self, devices: Sequence[DeviceRequests], now: float, read: Container[str]
    ) -> ClaimAnswers:
        self.calls.append({each.udid for each in devices if each.udid in read})
        return await super().take_of_devices(devices, now, read)


async def test_one_turn_reads_the_claims_of_256_devices() -> None:
    """A company whose devices have many claims must not keep the process from all others."""
    redis, remembered = Reading(), ClaimMemory(10_000).for_assignment()
    step = ClaimStep(claims=cast(Claims, redis), updater=NO_UPDATES, metrics=Metrics())
    udids = [f"phone {number}" for number in range(600)]
    for turn in range(4):
        decision_on: Any = interpreted.decider(BEGIN, 300.0, remembered)
        grants = []
        for offset, udid in enumerate(udids):
            detection, beacon = decoded(offset, udid, 0, 10 * turn)
            grants += interpreted.grants_of(detection, beacon, decision_on(detection, beacon))
        (claimed,) = await step.take([GrantsOfLane(grants, remembered)])
        assert len(claimed.granted) == len(udids), "those that are not read get their claims too"
    assert [len(each) for each in redis.calls] == [256, 256, 88, 0]
    assert set().union(*redis.calls) == set(udids)
    assert all(map(remembered.was_read, udids))
