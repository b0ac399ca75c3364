"""Remembered and read claims never lose a notification, whatever is delivered again.

Two processes, one after the other, as production decides and claims; Redis is the brute force of
the contract suite. The first one dies after it has taken claims and before it has published all
messages; the second one begins at the committed offset.
"""

import asyncio
from collections.abc import Sequence
from itertools import accumulate
from struct import iter_unpack
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kafka.detections import DecodedDetection, decode_record
from engine.process.metrics import Metrics
from engine.redis.claims import ClaimAnswers, Claims, DeviceRequests
from engine.trigger.claim_memory import ClaimMemory
from engine.trigger.cycle import Cycle
from engine.trigger.grants import DecidedDetection, Grant, decide_from_memory, grants_of
from engine.trigger.place_cache import IndexedPlace
from tests.kafka import records
from tests.redis.claim_requests import ClaimRequest
from tests.redis.claims_oracle import ClaimsOracle
from tests.trigger.samples import BEACON, campaign

BEGIN = 1_795_200_000
CAMPAIGNS = [campaign(id=1, delay=5), campaign(id=2, delay=12), campaign(id=3, delay=3)]
BEACONS = [
    IndexedPlace(BEACON, CAMPAIGNS[:1], None),
    IndexedPlace(BEACON, CAMPAIGNS[1:2], None),
    IndexedPlace(BEACON, CAMPAIGNS, None),
]

Detected = tuple[str, int, int]  # udid, beacon, seconds after the one before
detections = st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(-3, 6))


class BruteForce:
    """Redis in the place of `Claims`: every grant there ever was."""

    def __init__(self) -> None:
        self.oracle = ClaimsOracle()
        self._newest: dict[str, dict[int, float]] = {}

    async def take(self, devices: Sequence[DeviceRequests], _now: float) -> ClaimAnswers:
        newest = {each.udid: dict(self._newest.get(each.udid, {})) for each in devices if each.read}
        answers = [
            [0 if (at := self.answer(request)) is None else round(at * 1000) for request in of_one]
            for of_one in map(requests_of, devices)
        ]
        return ClaimAnswers(answers, cast(Any, newest))

    def answer(self, request: ClaimRequest) -> float | None:
        answer = self.oracle.take(request)
        if answer is None:
            known = self._newest.setdefault(request.udid, {})
            at = max(request.detected_at, known.get(request.campaign_id, 0.0))
            known[request.campaign_id] = at
        return answer


def requests_of(device: DeviceRequests) -> list[ClaimRequest]:
    """The requests as claim.lua unpacks them."""
    return [
        ClaimRequest(number, device.udid, owner, at / 1000, delay // 1000)
        for number, owner, at, delay in iter_unpack(">q16sqq", device.packed)
    ]


class Partition:
    """What a cycle needs of an assignment."""

    def __init__(self, most_remembered: int) -> None:
        self.remembered = ClaimMemory(most_remembered).for_assignment()


class Process:
    """One assignment of the partition: intake and cycle, as production decides and claims."""

    def __init__(self, redis: BruteForce, most_remembered: int) -> None:
        nothing: Any = None
        self._cycle = Cycle(
            index=nothing,
            claims=cast(Claims, redis),
            updater=nothing,
            devices=nothing,
            writer=nothing,
            letters=nothing,
            feed=nothing,
            counter=nothing,
            metrics=Metrics(),
            max_age=300.0,
            cycle_bytes=1,
            clock=lambda: float(BEGIN),
        )
        self._partition: Any = Partition(most_remembered)

    async def handle(self, batch: Sequence[tuple[DecodedDetection, IndexedPlace]]) -> list[Grant]:
        """What is to be published of a batch: decided from memory first, then for certain."""
        candidates = [each for each in map(self.decide, batch) if each.decision.granted]
        self._cycle._decide(candidates, set())
        await self._cycle._claim(candidates)
        return [grant for each in candidates for grant in each.grants]

    def decide(self, made: tuple[DecodedDetection, IndexedPlace]) -> DecidedDetection:
        decision = decide_from_memory(*made, self._partition.remembered, BEGIN, 300.0)
        return DecidedDetection(*made, decision, self._partition)


def all_grants(made: tuple[DecodedDetection, IndexedPlace]) -> list[Grant]:
    return grants_of(*made, Process(BruteForce(), 10).decide(made).decision)


def decoded(
    offset: int, udid: str, beacon: int, seconds: int
) -> tuple[DecodedDetection, IndexedPlace]:
    body = records.detection(
        device={"udid": udid}, detected_at=(BEGIN + seconds) * 1000, proximity="immediate"
    )
    return decode_record(records.record(body, offset=offset), 2.0), BEACONS[beacon]


def request_of(grant: Grant) -> ClaimRequest:
    chosen, at = grant.campaign, grant.detection.detected_at
    return ClaimRequest(chosen.id, grant.udid, grant.notification_id, at, chosen.delay)


def without_memory(stream: Sequence[tuple[DecodedDetection, IndexedPlace]]) -> set[bytes]:
    """The ids that must leave: each record requests each campaign, in their order."""
    redis = BruteForce()
    return {
        grant.notification_id
        for each in stream
        for grant in all_grants(each)
        if redis.answer(request_of(grant)) is None
    }


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
    made: list[Detected],
    size: int,
    committed: int,
    unclaimed: int,
    published: int,
    most_remembered: int,
) -> None:
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
        first = Process(redis, most_remembered)
        for begin in range(0, claimed, size):
            batch = stream[begin : min(begin + size, claimed)]
            left += [grant.notification_id for grant in await first.handle(batch)]
        # What was committed has left; of the rest, so many more.
        before = {
            grant.notification_id for each in stream[:committed] for grant in all_grants(each)
        }
        sent = {id_ for id_ in left if id_ in before} | set(left[:published])
        second = Process(redis, most_remembered)
        for begin in range(committed, len(stream), size):
            granted = await second.handle(stream[begin : begin + size])
            sent |= {grant.notification_id for grant in granted}
        return sent

    assert asyncio.run(run()) == without_memory(stream)
