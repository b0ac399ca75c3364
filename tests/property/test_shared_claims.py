"""Claims that lanes take in one call are those that they would take one lane after the other."""

import asyncio
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.process.metrics import Metrics
from engine.redis.claims import Claims
from engine.trigger import grants as interpreted
from engine.trigger.claim_memory import ClaimMemory
from engine.trigger.claim_step import ClaimStep, GrantsOfLane
from engine.trigger.grants import Grant, Granting
from tests.property.test_redelivery import BEGIN, NO_UPDATES, BruteForce, decoded
from tests.servers.compiled import compiled

LANES = 3
Detected = tuple[int, str, int, int]  # lane, udid, beacon, seconds after the one before
detections = st.tuples(
    st.integers(0, LANES - 1), st.sampled_from("abc"), st.integers(0, 2), st.integers(-3, 6)
)


class Lanes:
    """The lanes of a process, which take claims together or in turn."""

    def __init__(self, granting: Granting, *, together: bool) -> None:
        self._granting, self._together = granting, together
        claims = cast(Claims, BruteForce())
        self._step = ClaimStep(
            claims=claims, updater=NO_UPDATES, metrics=Metrics(), granting=granting
        )
        memory = ClaimMemory(1000)
        self.remembered = [memory.for_assignment() for _ in range(LANES)]

    async def handle(self, made: Sequence[tuple[int, Detected, int]]) -> list[list[bytes]]:
        """The ids that each lane may publish."""
        lanes = [self._grants(number, made) for number in range(LANES)]
        if self._together:
            claimed = await self._step.take(lanes)
        else:
            claimed = [each for lane in lanes for each in await self._step.take([lane])]
        for lane, (granted, denied) in zip(lanes, claimed, strict=True):
            ids = [grant.notification_id for grant in granted]
            assert ids == [
                grant.notification_id for grant in lane.grants if grant.notification_id in set(ids)
            ]
            assert len(granted) + len(denied) == len(lane.grants)
        return [[grant.notification_id for grant in each.granted] for each in claimed]

    def _grants(self, number: int, made: Sequence[tuple[int, Detected, int]]) -> GrantsOfLane:
        remembered, grants = self.remembered[number], list[Grant]()
        for offset, (lane, udid, beacon, _), at in made:
            if lane == number:
                detection, indexed = decoded(offset, udid, beacon, at)
                decision = self._granting.decider(BEGIN, 300.0, remembered)(detection, indexed)
                grants += self._granting.grants_of(detection, indexed, decision)
        return GrantsOfLane(grants, remembered)


@pytest.mark.parametrize("of", ["engine.trigger.grants", "engine.trigger.compiled_grants"])
@settings(max_examples=200, deadline=None)
@given(made=st.lists(detections, min_size=2, max_size=24), size=st.integers(1, 8))
def test_together_or_one_after_the_other(of: str, made: list[Detected], size: int) -> None:
    granting: Granting = compiled(of)
    times = accumulate(seconds for *_, seconds in made)
    stream = [(offset, each, at) for offset, (each, at) in enumerate(zip(made, times, strict=True))]

    async def run(*, together: bool) -> list[list[list[bytes]]]:
        lanes = Lanes(granting, together=together)
        return [
            await lanes.handle(stream[begin : begin + size])
            for begin in range(0, len(stream), size)
        ]

    assert asyncio.run(run(together=True)) == asyncio.run(run(together=False))


@pytest.mark.parametrize("of", ["engine.trigger.grants", "engine.trigger.compiled_grants"])
@settings(max_examples=100, deadline=None)
@given(made=st.lists(detections, min_size=2, max_size=24), size=st.integers(1, 8))
def test_what_is_remembered_of_devices_of_one_lane(
    of: str, made: list[Detected], size: int
) -> None:
    granting: Granting = compiled(of)
    times = accumulate(seconds for *_, seconds in made)
    stream = [
        (offset, (lane, f"{udid}{lane}", beacon, 0), at)
        for offset, ((lane, udid, beacon, _), at) in enumerate(zip(made, times, strict=True))
    ]

    async def run(*, together: bool) -> list[dict[str, dict[int, float]]]:
        lanes = Lanes(granting, together=together)
        for begin in range(0, len(stream), size):
            await lanes.handle(stream[begin : begin + size])
        return [each.young for each in lanes.remembered]

    assert asyncio.run(run(together=True)) == asyncio.run(run(together=False))


async def test_claims_that_are_given_back_after_the_assignment_are_not_remembered() -> None:
    class Updater:
        async def apply(self, updates: Sequence[object]) -> int:
            return len(updates)

    memory, granting = ClaimMemory(1000), interpreted
    step = ClaimStep(
        claims=cast(Claims, BruteForce()), updater=cast(Any, Updater()), metrics=Metrics()
    )
    remembered = memory.for_assignment()
    detection, indexed = decoded(0, "a", 2, 0)
    decision = granting.decider(BEGIN, 300.0, remembered)(detection, indexed)
    grants = granting.grants_of(detection, indexed, decision)
    await step.give_back(grants, remembered)
    assert memory.held == len(grants) + 3 > 3
    remembered.close()
    await step.give_back(grants, remembered)
    assert memory.held == 0
