"""Claims on every kind of Redis: which requests are granted, denied, and for how long."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.redis_connection import RedisClient, connect_redis
from engine.process.metrics import Metrics
from engine.redis.claims import Claims, claim_tag
from tests.redis.claim_requests import (
    NOW,
    RETAIN,
    ClaimRequest,
    claims_on,
    keys_of,
    outcomes,
    request,
    take,
)
from tests.redis.claims_oracle import ClaimsOracle


@pytest.fixture
def claims(redis: RedisClient, metrics: Metrics) -> Claims:
    return claims_on(redis, metrics)


async def test_a_batch_larger_than_one_call(claims: Claims) -> None:
    batch = [request(record, 0, udid=f"phone {record % 3000}") for record in range(6000)]
    answers = await outcomes(claims, *batch)
    assert answers == [None] * 3000 + [0.0] * 3000


async def test_campaigns_and_devices_are_independent(claims: Claims) -> None:
    batch = [request(1, campaign=c, udid=u) for c in (1, 11, 111) for u in ("1", "11", "1:1", "")]
    assert await outcomes(claims, *batch) == [None] * 12
    again = [request(2, campaign=c, udid=u) for c in (1, 11, 111) for u in ("1", "11", "1:1", "")]
    assert await outcomes(claims, *again) == [0.0] * 12


UDIDS = [" ", "a b", "{a}", "}{", "{}", "{63}", "é", "手机", "\U0001f4f1", "a\nb", "'\"\\", "%s"]


async def test_any_udid_will_do(claims: Claims) -> None:
    for udid in UDIDS:
        assert await outcomes(claims, request(1, udid=udid), request(2, udid=udid)) == [None, 0.0]
        assert await outcomes(claims, request(3, udid=udid + "x")) == [None]


async def test_a_claim_outlives_its_delay_by_what_may_still_come_late(
    claims: Claims, redis: RedisClient
) -> None:
    """A record may be decided late; its own time counts."""
    assert await outcomes(claims, request(1, -3700, delay=3600)) == [None]
    assert await outcomes(claims, request(2, -101, delay=3600)) == [-3700.0]
    assert await outcomes(claims, request(3, -100, delay=3600)) == [None]
    assert await outcomes(claims, request(1, -3700, delay=3600)) == [None]


async def test_every_claim_has_a_time_to_live_that_suffices(
    claims: Claims, redis: RedisClient
) -> None:
    """That of the longest, and of no claim that has ended."""
    for delay in (1, 3600, 100 * 365 * 86400, 60):
        await outcomes(claims, request(1, 10, campaign=delay, delay=delay))
        (key,) = await keys_of(redis)
        left = await redis.pttl(key)
        longest = 100 * 365 * 86400 if delay == 60 else delay
        assert longest + RETAIN - 10 < left / 1000 <= longest + RETAIN + 10


async def test_the_stored_size_of_a_claim_is_bounded(claims: Claims, redis: RedisClient) -> None:
    for begin in range(0, 6000, 500):
        requests = [request(record, record, delay=1) for record in range(begin, begin + 500)]
        assert await outcomes(claims, *requests, now=NOW + begin) == [None] * 500
    (key,) = await keys_of(redis)
    assert await redis.hstrlen(key, "1") <= 1024 * 30


async def test_grants_are_remembered_for_as_long_as_records_may_repeat(claims: Claims) -> None:
    for begin in range(0, 3000, 500):
        requests = [request(record, record, delay=1) for record in range(begin, begin + 500)]
        now = NOW + begin + 500
        assert await outcomes(claims, *requests, now=now) == [None] * 500
        repeats = [request(record, record, delay=1) for record in range(max(0, begin - 100), begin)]
        assert await outcomes(claims, *repeats, now=now) == [None] * len(repeats)


async def test_claims_are_counted(claims: Claims, metrics: Metrics) -> None:
    await outcomes(claims, request(1), request(2), request(3), request(1))
    read = metrics.registry.get_sample_value
    assert read("proximity_claims_total", {"outcome": "granted"}) == 2
    assert read("proximity_claims_total", {"outcome": "denied"}) == 2


async def test_two_processes_get_one_claim(any_redis_url: str, metrics: Metrics) -> None:
    clients = [connect_redis(any_redis_url) for _ in range(2)]
    both = [claims_on(client, metrics) for client in clients]
    requests = [[request(p * 1000 + n, udid=f"phone {n}") for n in range(300)] for p in (0, 1)]
    answers = await asyncio.gather(
        *(take(each, w, NOW) for each, w in zip(both, requests, strict=True))
    )
    for client in clients:
        await client.aclose()
    assert all((a is None) != (b is None) for a, b in zip(*answers, strict=True))


async def test_a_script_cache_that_is_lost_is_no_harm(claims: Claims, redis: RedisClient) -> None:
    assert await outcomes(claims, request(1)) == [None]
    await redis.script_flush()
    assert await outcomes(claims, request(2)) == [0.0]


async def test_all_claims_of_a_list_are_one_round_trip(claims: Claims, redis: RedisClient) -> None:
    """Also on a cluster, where they are a script call a slot: 64 slots were 64 round trips."""
    await outcomes(claims, request(1, udid="loads the script"))
    devices = [request(2, udid=f"phone {number}") for number in range(200)]
    assert len({claim_tag(each.udid.encode()) for each in devices}) > 50
    before = await reads_of(redis)
    assert await outcomes(claims, *devices) == [None] * 200
    # One INFO, and one list of 20 kB: a read takes 16 kB at least.
    assert await reads_of(redis) - before <= 4


async def reads_of(redis: RedisClient) -> int:
    """The number of reads from connections of the server."""
    info = await redis.info("stats")
    return int(info["total_reads_processed"])


async def test_claims_that_are_needed_no_more_are_removed(
    claims: Claims, redis: RedisClient
) -> None:
    """A device that keeps receiving campaigns keeps its key; expired claims are removed from it."""
    for number in range(1, 400):
        await outcomes(claims, request(1, number * 100, campaign=number), now=NOW + number * 100)
    (key,) = await keys_of(redis)
    assert await redis.hlen(key) <= 64 + (60 + RETAIN) / 100 + 1
    assert await outcomes(claims, request(2, 399 * 100 + 59, campaign=399)) == [399 * 100.0]


requests = st.builds(
    request,
    record=st.integers(0, 12),
    delay=st.sampled_from((1, 5, 60)),
    campaign=st.integers(1, 2),
    udid=st.sampled_from(("a", "b")),
)


@st.composite
def histories(draw: st.DrawFn) -> list[list[ClaimRequest]]:
    """Batches of records, each with its own time, and then some of them delivered again."""
    times = draw(st.lists(st.integers(-290_000, 290_000), min_size=13, max_size=13))
    delays = draw(st.fixed_dictionaries({1: st.integers(1, 90), 2: st.integers(1, 400)}))
    batches = draw(st.lists(st.lists(requests, max_size=8), min_size=1, max_size=8))
    made: dict[bytes, ClaimRequest] = {}
    for batch in batches:
        for n, each in enumerate(batch):
            record = int.from_bytes(each.notification_id[:2]) % 13
            own = each._replace(
                detected_at=NOW + times[record] / 1000, delay=delays[each.campaign_id]
            )
            batch[n] = made.setdefault(each.notification_id, own)
    return batches


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=histories())
def test_the_answers_are_those_of_the_oracle(
    any_redis_url: str, history: list[list[ClaimRequest]]
) -> None:
    asyncio.run(_compare(any_redis_url, history))


async def _compare(url: str, history: list[list[ClaimRequest]]) -> None:
    redis = connect_redis(url)
    await redis.flushall()
    claims = claims_on(redis, Metrics())
    oracle = ClaimsOracle()
    for batch in history:
        expected = [oracle.take(request) for request in batch]
        assert await take(claims, batch, NOW) == expected
    await redis.aclose()
