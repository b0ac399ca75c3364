"""Remembered and read claims never lose a notification, whatever is delivered again.

Two processes, one after the other, as production decides and claims; Redis is the brute force of
the contract suite. The first one dies after it has taken claims and before it has published all
messages; the second one begins at the committed offset.
"""

import asyncio
from collections.abc import Container, Sequence
from itertools import accumulate
from struct import iter_unpack
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kafka.detections import DecodedDetection, decode_record
from engine.process.metrics import Metrics
from engine.redis.claim_wire import DeviceRequests
from engine.redis.claims import ClaimAnswers, ClaimRequest, Claims
from engine.trigger import grants as interpreted
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.claim_memory import ClaimMemory
from engine.trigger.claim_step import ClaimStep, GrantsOfLane
from engine.trigger.grants import Grant, Granting
from tests.contract.claims_oracle import ClaimsOracle
from tests.servers.compiled import compiled
from tests.unit.engine import records
from tests.unit.engine.test_compose import BEACON, campaign

BEGIN = 1_795_200_000
NO_UPDATES: Any = None
CAMPAIGNS = [campaign(id=1, delay=5), campaign(id=2, delay=12), campaign(id=3, delay=3)]
BEACONS = [
    IndexedBeacon(BEACON, CAMPAIGNS[:1], None),
    IndexedBeacon(BEACON, CAMPAIGNS[1:2], None),
    IndexedBeacon(BEACON, CAMPAIGNS, None),
]

Detected = tuple[str, int, int]  # udid, beacon, seconds after the one before
detections = st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(-3, 6))


class BruteForce:
    """Redis in the place of `Claims`: every grant there ever was."""

    def __init__(self) -> None:
        self.oracle = ClaimsOracle()
        self._newest: dict[str, dict[int, float]] = {}

    async def take_of_devices(
        self, devices: Sequence[DeviceRequests], _now: float, read: Container[str]
    ) -> ClaimAnswers:
        newest = {
            each.udid: dict(self._newest.get(each.udid, {}))
            for each in devices
            if each.udid in read
        }
        answers = [self.take(request) for request in in_order(devices)]
        return ClaimAnswers(answers, cast(Any, newest))

    def take(self, request: ClaimRequest) -> float | None:
        answer = self.oracle.take(request)
        if answer is None:
            known = self._newest.setdefault(request.udid, {})
            at = max(request.detected_at, known.get(request.campaign_id, 0.0))
            known[request.campaign_id] = at
        return answer


def in_order(devices: Sequence[DeviceRequests]) -> list[ClaimRequest]:
    """The requests as claim.lua unpacks them."""
    found: dict[int, ClaimRequest] = {}
    for udid, positions, packed in devices:
        unpacked = iter_unpack(">q16sqq", packed)
        for position, (number, owner, at, delay) in zip(positions, unpacked, strict=True):
            found[position] = ClaimRequest(number, udid, owner, at / 1000, delay // 1000)
    return [found[position] for position in range(len(found))]


class Process:
    """One assignment of the partition."""

    def __init__(self, redis: BruteForce, most_remembered: int, granting: Granting) -> None:
        claims = cast(Claims, redis)
        self._granting = granting
        self._step = ClaimStep(
            claims=claims, updater=NO_UPDATES, metrics=Metrics(), granting=granting
        )
        self._remembered = ClaimMemory(most_remembered).for_assignment()

    async def handle(self, batch: Sequence[tuple[DecodedDetection, IndexedBeacon]]) -> list[Grant]:
        """What is to be published of a batch: decided from memory first, then for certain."""
        candidates = [each for each in batch if self._decide(*each)]
        grants = [grant for each in candidates for grant in self._decide(*each)]
        (claimed,) = await self._step.take([GrantsOfLane(grants, self._remembered)])
        return claimed.granted

    def _decide(self, detection: DecodedDetection, beacon: IndexedBeacon) -> list[Grant]:
        decision = self._granting.decider(BEGIN, 300.0, self._remembered)(detection, beacon)
        return self._granting.grants_of(detection, beacon, decision)


def decoded(
    offset: int, udid: str, beacon: int, seconds: int
) -> tuple[DecodedDetection, IndexedBeacon]:
    body = records.detection(
        device={"udid": udid}, detected_at=(BEGIN + seconds) * 1000, proximity="immediate"
    )
    return decode_record(records.record(body, offset=offset), 2.0), BEACONS[beacon]


def without_memory(stream: Sequence[tuple[DecodedDetection, IndexedBeacon]]) -> set[bytes]:
    """The ids that must leave: each record requests each campaign, in their order."""
    redis = BruteForce()
    process = Process(redis, 10, interpreted)
    return {
        grant.notification_id
        for each in stream
        for grant in process._decide(*each)
        if redis.take(grant.claim_request()) is None
    }


@pytest.mark.parametrize("of", ["engine.trigger.grants", "engine.trigger.compiled_grants"])
@settings(max_examples=300, deadline=None)
@given(
    made=st.lists(detections, min_size=4, max_size=14),
    size=st.integers(1, 4),
    committed=st.integers(0, 3),
    unclaimed=st.integers(0, 4),
    published=st.integers(0, 3),
    most_remembered=st.sampled_from((2, 6, 1000)),
)
def test_nothing_is_lost_and_nothing_else_is_sent(
    of: str,
    made: list[Detected],
    size: int,
    committed: int,
    unclaimed: int,
    published: int,
    most_remembered: int,
) -> None:
    granting: Granting = compiled(of)
    times = accumulate(seconds for _, _, seconds in made)
    stream = [
        decoded(offset, udid, beacon, seconds)
        for offset, ((udid, beacon, _), seconds) in enumerate(zip(made, times, strict=True))
    ]
    claimed = len(stream) - unclaimed
    committed = min(committed, claimed)

    async def run() -> set[bytes]:
        redis = BruteForce()
        left: list[bytes] = []
        first = Process(redis, most_remembered, granting)
        for begin in range(0, claimed, size):
            batch = stream[begin : min(begin + size, claimed)]
            left += [grant.notification_id for grant in await first.handle(batch)]
        # What was committed has left; of the rest, so many more.
        before = {
            grant.notification_id
            for each in stream[:committed]
            for grant in Process(BruteForce(), 10, granting)._decide(*each)
        }
        sent = {id_ for id_ in left if id_ in before} | set(left[:published])
        second = Process(redis, most_remembered, granting)
        for begin in range(committed, len(stream), size):
            granted = await second.handle(stream[begin : begin + size])
            sent |= {grant.notification_id for grant in granted}
        return sent

    assert asyncio.run(run()) == without_memory(stream)
