"""Remembered and read claims never lose a notification, whatever is delivered again.

Two processes, one after the other, as production decides and claims; Redis is the brute force of
the contract suite. The first one dies after it has taken claims and before it has published all
messages; the second one begins at the committed offset.
"""

import asyncio
from collections.abc import Sequence
from itertools import accumulate, count
from struct import iter_unpack
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kafka.detections import DecodedDetection, decode_record
from engine.process.metrics import Metrics
from engine.redis.claims import Answer, ClaimAnswers, Claims, DeviceRequests
from engine.trigger.claim_memory import ClaimMemory
from engine.trigger.cycle import Cycle
from engine.trigger.grants import DecidedDetection, decide_from_memory, notification_ids, plan_of
from engine.trigger.place_cache import IndexedPlace
from rules.model import Cap, CompanyRules
from tests.kafka import records
from tests.redis.claim_requests import ClaimRequest, ClaimsOracle
from tests.trigger.samples import BEACON, campaign

BEGIN = 1_795_200_000
CAMPAIGNS = [campaign(id=1, delay=5), campaign(id=2, delay=12), campaign(id=3, delay=3)]
CAPS = (Cap(2, 7), Cap(3, 15))
BEACONS: dict[tuple[Cap, ...], list[IndexedPlace]] = {
    caps: [
        IndexedPlace(BEACON, each, None, rules=CompanyRules(company_id=1, caps=caps))
        for each in (CAMPAIGNS[:1], CAMPAIGNS[1:2], CAMPAIGNS)
    ]
    for caps in ((), CAPS)
}

Detected = tuple[str, int, int]  # udid, beacon, seconds after the one before
detections = st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(-3, 6))


class BruteForce:
    """Redis in the place of `Claims`: every grant there ever was."""

    def __init__(self) -> None:
        self.oracle = ClaimsOracle()
        self._newest: dict[str, dict[int, float]] = {}
        self._places: dict[str, dict[bytes, float]] = {}  # that caps count, by owner

    async def take(self, devices: Sequence[DeviceRequests], _now: float) -> ClaimAnswers:
        newest = {each.udid: dict(self._newest.get(each.udid, {})) for each in devices if each.read}
        answers: list[list[Answer]] = [
            [self._shown(self.answer(request, each.caps), request) for request in requests_of(each)]
            for each in devices
        ]
        return ClaimAnswers(answers, cast(Any, newest))

    def _shown(self, answer: float | str | None, request: ClaimRequest) -> Answer:
        if not isinstance(answer, str):
            return 0 if answer is None else round(answer * 1000)
        after = max(self._places[request.udid].values())
        until = next(t for t in count(after + 1) if self._has_room(request.udid, t))
        return [round(after * 1000), round(until * 1000), 0]

    def _has_room(self, udid: str, at: float) -> bool:
        times = [*self._places.get(udid, {}).values(), at]
        return all(
            sum(a <= each < a + cap.seconds for each in times) <= cap.most
            for cap in CAPS
            for a in times
        )

    def answer(self, request: ClaimRequest, caps: bytes) -> float | str | None:
        places = self._places.setdefault(request.udid, {})
        owner, at = request.notification_id, request.detected_at
        if caps and owner not in places and not self._has_room(request.udid, at):
            # A claim comes before the caps, and what is capped takes none.
            return self.oracle.would_forbid(request) or "capped"
        answer = self.oracle.take(request)
        if caps and answer is None:
            places[owner] = at
        if answer is None:
            known = self._newest.setdefault(request.udid, {})
            at = max(request.detected_at, known.get(request.campaign_id, 0.0))
            known[request.campaign_id] = at
        return answer


def requests_of(device: DeviceRequests) -> list[ClaimRequest]:
    """The requests as claim.lua unpacks them."""
    return [
        ClaimRequest(number, device.udid, owner, at / 1000, delay // 1000)
        for number, owner, at, delay, _ in iter_unpack(">q16sqqB", device.packed)
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

    async def handle(self, batch: Sequence[tuple[DecodedDetection, IndexedPlace]]) -> list[bytes]:
        """What is to be published of a batch: decided from memory first, then for certain."""
        candidates = [each for each in map(self.decide, batch) if each.decision.granted]
        await self._cycle._claim(*self._cycle._prepare(candidates, set()))
        return [id_ for each in candidates for id_ in each.ids]

    def decide(self, made: tuple[DecodedDetection, IndexedPlace]) -> DecidedDetection:
        decision = decide_from_memory(*made, self._partition.remembered, BEGIN, 300.0)
        return DecidedDetection(*made, decision, self._partition, plan=plan_of(decision, made[1]))


def all_requests(made: tuple[DecodedDetection, IndexedPlace]) -> list[tuple[ClaimRequest, bytes]]:
    """A request for each campaign, and whether caps count it."""
    detection, beacon = made
    granted = Process(BruteForce(), 10).decide(made).decision.granted
    udid, at = detection.message.device.udid, detection.detected_at
    caps = b"caps" if beacon.target.rules.caps else b""
    return [
        (ClaimRequest(each.id, udid, id_, at, each.delay), caps)
        for each, id_ in zip(granted, notification_ids(detection, granted), strict=True)
    ]


def decoded(
    offset: int, udid: str, beacon: int, seconds: int, caps: tuple[Cap, ...]
) -> tuple[DecodedDetection, IndexedPlace]:
    body = records.detection(
        device={"udid": udid}, detected_at=(BEGIN + seconds) * 1000, proximity="immediate"
    )
    return decode_record(records.record(body, offset=offset), 2.0), BEACONS[caps][beacon]


def without_memory(stream: Sequence[tuple[DecodedDetection, IndexedPlace]]) -> set[bytes]:
    """The ids that must leave: each record requests each campaign, in their order."""
    redis = BruteForce()
    return {
        request.notification_id
        for each in stream
        for request, caps in all_requests(each)
        if redis.answer(request, caps) is None
    }


@settings(max_examples=300, deadline=None)
@given(
    made=st.lists(detections, min_size=4, max_size=14),
    size=st.integers(1, 4),
    committed=st.integers(0, 3),
    unclaimed=st.integers(0, 4),
    published=st.integers(0, 3),
    most_remembered=st.sampled_from((2, 6, 1000)),
    caps=st.sampled_from(tuple(BEACONS)),
)
def test_nothing_is_lost_and_nothing_else_is_sent(
    made: list[Detected],
    size: int,
    committed: int,
    unclaimed: int,
    published: int,
    most_remembered: int,
    caps: tuple[Cap, ...],
) -> None:
    times = accumulate(seconds for _, _, seconds in made)
    stream = [
        decoded(offset, udid, beacon, seconds, caps)
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
            left += await first.handle(batch)
        # What was committed has left; of the rest, so many more.
        before = {
            request.notification_id
            for each in stream[:committed]
            for request, _ in all_requests(each)
        }
        sent = {id_ for id_ in left if id_ in before} | set(left[:published])
        second = Process(redis, most_remembered)
        for begin in range(committed, len(stream), size):
            sent |= set(await second.handle(stream[begin : begin + size]))
        return sent

    assert asyncio.run(run()) == without_memory(stream)
