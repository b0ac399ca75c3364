"""Caps on every kind of Redis, with claims, against a list of all that was ever sent."""

import asyncio
from collections.abc import Sequence
from typing import Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.redis_connection import RedisClient, connect_redis
from engine.process.metrics import Metrics
from engine.redis.claims import (
    COUNTED,
    NOT_COUNTED,
    RETURNABLE,
    CapPlace,
    ClaimReader,
    Claims,
    ClaimUpdate,
    ClaimUpdater,
    DeviceRequests,
    claims_key,
    pack_caps,
    pack_request,
    places_field,
)
from engine.redis.devices import DeviceKey
from rules.model import Cap
from tests.redis.claim_requests import NOW, PREFIX, RETAIN, claims_on, request

CAPS = (Cap(2, 60), Cap(3, 600))
Fate = Literal["sent", "failed", "refused"]


class Send(NamedTuple):
    """A request of a record, at seconds from NOW."""

    record: int
    at: float
    delay: int = 0
    campaign: int = 1
    counted: int = COUNTED
    udid: str = "phone"

    @property
    def owner(self) -> bytes:
        return request(self.record, campaign=self.campaign, udid=self.udid).notification_id

    def packed(self) -> bytes:
        at = round((NOW + self.at) * 1000)
        return pack_request(self.campaign, self.owner, at, self.delay * 1000, self.counted)

    def update(self, fate: Fate, caps: Sequence[Cap] = CAPS) -> ClaimUpdate:
        at, keep = float(int(NOW + self.at)), self.delay if fate == "sent" else 0
        place = CapPlace(pack_caps(1, tuple(caps)), fate)
        return ClaimUpdate(self.campaign, self.udid, self.owner, at, self.delay, keep, place)


async def outcomes(
    claims: Claims, *sends: Send, caps: Sequence[Cap] = CAPS, now: float = NOW
) -> list[str]:
    """ "granted", "throttled" or "capped" for each."""
    devices = [
        DeviceRequests(each.udid, each.packed(), caps=pack_caps(1, tuple(caps))) for each in sends
    ]
    answers = await claims.take(devices, now)
    kinds = ["capped" if isinstance(by, list) else by for (by,) in answers.forbidden_by]
    return [("throttled" if by else "granted") if isinstance(by, int) else by for by in kinds]


async def test_all_caps_hold(claims: Claims) -> None:
    sends = [Send(n, at) for n, at in enumerate((0, 1, 59.999, 60, 60.5, 300, 600, 601))]
    assert await outcomes(claims, *sends) == [
        *("granted", "granted", "capped", "granted"),
        *("capped", "capped", "granted", "granted"),
    ]


async def test_companies_are_capped_by_themselves(claims: Claims, redis: RedisClient) -> None:
    assert await outcomes(claims, Send(1, 0), Send(2, 0), Send(3, 0)) == [
        *("granted", "granted", "capped")
    ]
    other = DeviceRequests("phone", Send(3, 0).packed(), caps=pack_caps(2, CAPS))
    assert (await claims.take([other], NOW)).forbidden_by == [[0]]
    key = claims_key(PREFIX.encode(), "phone")
    assert set(await redis.hkeys(key)) == {places_field(each).encode() for each in (1, 2)}
    # One without caps keeps its claims alone.
    packed = Send(1, 0, delay=60, counted=NOT_COUNTED, udid="other").packed()
    await claims.take([DeviceRequests("other", packed)], NOW)
    assert await redis.hkeys(claims_key(PREFIX.encode(), "other")) == [b"1"]


async def test_a_refusal_says_how_long_it_holds(claims: Claims) -> None:
    await outcomes(claims, Send(1, 0), Send(2, 20, counted=RETURNABLE))
    caps = pack_caps(1, CAPS)
    denied = await claims.take([DeviceRequests("phone", Send(3, 30).packed(), caps=caps)], NOW)
    assert denied.forbidden_by == [[[round((NOW + 20) * 1000), round((NOW + 60) * 1000), 1]]]


@pytest.mark.parametrize("fate", ["failed", "refused"])
async def test_a_place_is_given_back_by_its_owner_alone(
    claims: Claims, updater: ClaimUpdater, fate: Fate
) -> None:
    first, second, third = (Send(n, n, counted=RETURNABLE) for n in range(3))
    assert await outcomes(claims, first, second, third) == ["granted", "granted", "capped"]
    await updater.settle([third.update(fate)])
    assert await outcomes(claims, third) == ["capped"]
    await updater.settle([first.update(fate)])
    assert await outcomes(claims, third, first) == ["granted", "capped"]


async def test_a_call_that_fails_when_it_is_repeated_gives_nothing_back(
    claims: Claims, updater: ClaimUpdater
) -> None:
    """It may have been published before the crash."""
    first, second, third = (Send(n, n, 60, n + 1, RETURNABLE) for n in range(3))
    await outcomes(claims, first, second)
    assert await updater.settle([first.update("sent")]) == [True]
    await updater.settle([first.update("failed")])
    assert await outcomes(claims, third) == ["capped"]
    await updater.settle([first.update("refused")])
    assert await outcomes(claims, third) == ["granted"]


async def test_a_place_that_was_lost_is_taken_again_if_there_is_room(
    claims: Claims, updater: ClaimUpdater, redis: RedisClient
) -> None:
    sends = [Send(n, n, 60, n + 1, RETURNABLE) for n in range(3)]
    await outcomes(claims, *sends[:2])
    await redis.flushall()
    assert await updater.settle([each.update("sent") for each in sends]) == [True, True, False]
    assert await outcomes(claims, *sends) == ["granted", "granted", "capped"]


async def test_places_are_kept_for_as_long_as_they_count(
    claims: Claims, redis: RedisClient
) -> None:
    for n in range(400):
        at = n * 400.0
        await outcomes(claims, Send(n, at), now=NOW + at)
    key = claims_key(PREFIX.encode(), "phone")
    assert await redis.hstrlen(key, places_field(1)) <= 14 + 31 * ((600 + RETAIN) / 400 + 1)
    await outcomes(claims, Send(999, 0, udid="once"))
    left = await redis.pttl(claims_key(PREFIX.encode(), "once")) / 1000
    assert 600 + RETAIN - 10 < left <= 600 + RETAIN + 10


async def test_the_history_of_a_device_is_read(claims: Claims, redis: RedisClient) -> None:
    await outcomes(claims, Send(1, 0.25, delay=60), Send(2, 7))
    reader = ClaimReader(redis=redis, prefix=PREFIX, deadline=5.0)
    history = await reader.history(DeviceKey(1, "phone"), [1, 2])
    assert (list(history.claims), history.sent) == ([1], (NOW + 0.25, NOW + 7))
    assert await reader.history(DeviceKey(2, "phone"), []) == ({}, (), None)


class SentOracle:
    """What must be granted, from a list of all that was; only its own record is found in it."""

    def __init__(self, caps: Sequence[Cap]) -> None:
        self.caps = caps
        self.sent: dict[bytes, Send] = {}

    def take(self, send: Send) -> str:
        if send.owner in self.sent:
            return "granted"
        mine = [each for each in self.sent.values() if each.udid == send.udid]
        same = [each for each in mine if each.campaign == send.campaign and send.delay]
        if any(send.at < each.at + send.delay for each in same):
            return "throttled"
        times = [each.at for each in (*mine, send) if each.counted]
        full = (
            sum(a <= each < a + cap.seconds for each in times) > cap.most
            for a in times
            for cap in self.caps
        )
        if send.counted and any(full):
            return "capped"
        self.sent[send.owner] = send
        return "granted"


@st.composite
def histories(draw: st.DrawFn) -> list[list[Send]]:
    """Batches of records with times of their own, some of them delivered again."""
    count, campaigns = draw(st.integers(1, 14)), range(1, 4)
    delays = {n: draw(st.sampled_from((0, 7, 30, 200))) for n in campaigns}
    counted = {
        n: draw(st.sampled_from((COUNTED, COUNTED, RETURNABLE, NOT_COUNTED))) for n in delays
    }
    asking = st.integers(0, 1), st.integers(-290_000, 290_000).map(lambda ms: ms / 1000)
    records = [(draw(asking[0]), draw(asking[1])) for _ in range(count)]
    batch = st.lists(st.tuples(st.integers(0, count - 1), st.sampled_from(campaigns)), max_size=8)

    def send(record: int, campaign: int) -> Send:
        udid, at = records[record]
        kind = counted[campaign] if delays[campaign] else counted[campaign] or COUNTED
        return Send(record, at, delays[campaign], campaign, kind, f"phone {udid}")

    batches = draw(st.lists(batch, min_size=1, max_size=8))
    return [[send(*each) for each in batch] for batch in batches]


@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    history=histories(),
    caps=st.lists(st.builds(Cap, st.integers(1, 4), st.integers(1, 300)), min_size=1, max_size=3),
)
def test_the_answers_are_those_of_the_oracle(
    any_redis_url: str, history: list[list[Send]], caps: list[Cap]
) -> None:
    async def compare() -> None:
        redis, oracle = connect_redis(any_redis_url), SentOracle(caps)
        await redis.flushall()
        claims = claims_on(redis, Metrics())
        for batch in history:
            expected = [oracle.take(each) for each in batch]
            assert await outcomes(claims, *batch, caps=caps) == expected
        await redis.aclose()

    asyncio.run(compare())
