"""Claims and caps on every kind of Redis: granted, denied and for how long, read, given back."""

import asyncio
from itertools import count, islice, product
from typing import Literal, TypeAlias

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catalog.redis_connection import RedisClient, connect_redis
from engine.process.metrics import Metrics
from engine.redis.claims import (
    COUNTED,
    NOT_COUNTED,
    REQUEST_BYTES,
    RETURNABLE,
    CapPlace,
    ClaimReader,
    Claims,
    ClaimUpdate,
    DeviceRequests,
    calls_of_requests,
    claim_tag,
    claims_key,
    pack_caps,
    places_field,
)
from engine.redis.devices import DeviceKey
from rules.model import Cap
from rules.parsing import LONGEST_DELAY
from tests.redis.claim_requests import (
    NOW,
    PREFIX,
    RETAIN,
    ClaimRequest,
    ClaimsOracle,
    claims_on,
    keys_of,
    outcomes,
    request,
    take,
)

UDIDS = [
    *("1", "11", "1:1", "", " ", "a b", "{a}", "}{", "{}", "{63}", "é", "手机", "\U0001f4f1"),
    *("a\nb", "'\"\\", "%s"),
]


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


async def test_grants_are_remembered_for_as_long_as_records_may_repeat(
    claims: Claims, redis: RedisClient
) -> None:
    """And not for ever: the stored size is bounded."""
    for begin in range(0, 6000, 500):
        requests = [request(record, record, delay=1) for record in range(begin, begin + 500)]
        now = NOW + begin + 500
        assert await outcomes(claims, *requests, now=now) == [None] * 500
        repeats = [request(record, record, delay=1) for record in range(max(0, begin - 100), begin)]
        assert await outcomes(claims, *repeats, now=now) == [None] * len(repeats)
    (key,) = await keys_of(redis)
    assert await redis.hstrlen(key, "1") <= 1024 * 30


async def test_claims_that_are_needed_no_more_are_removed(
    claims: Claims, redis: RedisClient
) -> None:
    """A device that keeps receiving campaigns keeps its key; expired claims are removed from it."""
    for number in range(1, 400):
        await outcomes(claims, request(1, number * 100, campaign=number), now=NOW + number * 100)
    (key,) = await keys_of(redis)
    assert await redis.hlen(key) <= 64 + (60 + RETAIN) / 100 + 1
    assert await outcomes(claims, request(2, 399 * 100 + 59, campaign=399)) == [399 * 100.0]


async def test_two_processes_get_one_claim(any_redis_url: str, metrics: Metrics) -> None:
    """Also of more devices than a call takes; and what one gives back, others may have."""
    clients = [connect_redis(any_redis_url) for _ in range(2)]
    both = [claims_on(client, metrics) for client in clients]
    requests = [[request(p * 10_000 + n, udid=f"phone {n}") for n in range(2500)] for p in (0, 1)]
    answers = await asyncio.gather(
        *(take(each, w, NOW) for each, w in zip(both, requests, strict=True))
    )
    assert all((a is None) != (b is None) for a, b in zip(*answers, strict=True))
    for outcome in ("granted", "denied"):
        sample = metrics.registry.get_sample_value
        assert sample("proximity_claims_total", {"outcome": outcome}) == 2500
    granted = [answer is None for answer in answers[0]]
    assert await both[0].settle([ending(each, 0) for each in requests[0]]) == granted
    later = [request(30_000 + n, udid=f"phone {n}") for n in range(2500)]
    assert [answer is None for answer in await take(both[1], later, NOW)] == granted
    for client in clients:
        await client.aclose()


async def test_a_script_cache_that_is_lost_is_no_harm(claims: Claims, redis: RedisClient) -> None:
    assert await outcomes(claims, request(1)) == [None]
    await redis.script_flush()
    assert await outcomes(claims, request(2)) == [0.0]


async def test_all_claims_of_a_list_are_one_round_trip(claims: Claims, redis: RedisClient) -> None:
    """Also on a cluster, where they are a script call a slot: 64 slots were 64 round trips."""

    async def reads() -> int:
        return int((await redis.info("stats"))["total_reads_processed"])

    await outcomes(claims, request(1, udid="loads the script"))
    devices = [request(2, udid=f"phone {number}") for number in range(200)]
    assert len({claim_tag(each.udid) for each in devices}) > 50
    before = await reads()
    assert await outcomes(claims, *devices) == [None] * 200
    # One INFO, and one list of 20 kB: a read takes 16 kB at least.
    assert await reads() - before <= 4


COMPANIES = {1: 1, 2: 1, 3: 2}  # of the campaigns
# How long the claim is kept after a call, and what becomes of the place.
Ending: TypeAlias = tuple[int, Literal["sent", "failed", "refused"]]
ENDINGS: list[Ending] = [(2**40, "sent"), (60, "failed"), (0, "failed"), (0, "refused")]
# Requests in one batch, and in which ways the first one ends; or nothing: Redis loses everything.
Step: TypeAlias = tuple[list[ClaimRequest], list[Ending]]


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    """Records with times of their own, some of them delivered again and called for again."""
    delays = {n: draw(st.sampled_from((0, 7, 30, 200, LONGEST_DELAY))) for n in COMPANIES}
    kinds = st.sampled_from((COUNTED, RETURNABLE, RETURNABLE, NOT_COUNTED))
    counted = {n: draw(kinds) for n in COMPANIES}
    udids = st.sampled_from(draw(st.lists(st.sampled_from(UDIDS), min_size=1, max_size=2)))
    at = st.integers(-290_000, 290_000).map(lambda ms: ms / 1000)
    records = draw(st.lists(st.tuples(udids, at), min_size=1, max_size=8))

    def asked(record: int, campaign: int) -> ClaimRequest:
        udid, at = records[record]
        kind = counted[campaign] if delays[campaign] else counted[campaign] or COUNTED
        return request(record, at, delays[campaign], campaign, udid, kind)

    one = st.builds(asked, st.integers(0, len(records) - 1), st.sampled_from(list(COMPANIES)))
    endings = st.lists(st.sampled_from(ENDINGS), max_size=3)
    steps = st.tuples(st.lists(one, max_size=6), endings)
    return draw(st.lists(steps, min_size=1, max_size=8))


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(histories(), st.lists(st.builds(Cap, st.integers(1, 3), st.integers(1, 300)), max_size=2))
def test_the_answers_are_those_of_the_oracle(
    any_redis_url: str, history: list[Step], caps: list[Cap]
) -> None:
    """Claims belong to campaigns and places to companies; only an owner gives one back."""
    asyncio.run(compare(any_redis_url, history, tuple(caps)))


async def compare(url: str, history: list[Step], caps: tuple[Cap, ...]) -> None:
    redis = connect_redis(url)
    # (However late this runs in the suite, its grants are remembered.)
    claims = Claims(redis=redis, prefix=PREFIX, deadline=5.0, retain=1e6, metrics=Metrics())
    oracles: dict[int, ClaimsOracle] = {}
    for batch, endings in [([], []), *history]:
        if not batch:
            await redis.flushall()
            oracles = {company: ClaimsOracle(caps) for company in COMPANIES.values()}
        asked = [each if caps else each._replace(counted=NOT_COUNTED) for each in batch]
        asked = [each for each in asked if each.delay or each.counted]
        expected = [oracles[COMPANIES[each.campaign_id]].take(each) for each in asked]
        assert await take(claims, asked, NOW, caps, COMPANIES) == expected
        for one, (keep, fate) in product(asked[:1], endings):
            company, keep = COMPANIES[one.campaign_id], min(keep, one.delay)
            place = CapPlace(pack_caps(company, caps), fate) if one.counted else None
            settled = await claims.settle([ending(one, keep, place)])
            assert settled == [oracles[company].settle(one, keep, fate)]
    await redis.aclose()


def ending(of: ClaimRequest, keep: int, place: CapPlace | None = None) -> ClaimUpdate:
    """What the end of a call changes; messages have whole seconds."""
    at = float(int(of.detected_at))
    return ClaimUpdate(of.campaign_id, of.udid, of.notification_id, at, of.delay, keep, place)


MOST_READ = 32


# The number of requests of each device, and whether its claims are read.
@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=120), st.booleans())
def test_each_call_reads_few_devices_and_nothing_is_left_out(
    made: list[tuple[int, bool]], clustered: bool
) -> None:
    requested = [
        DeviceRequests(f"phone {number}", bytes([number]) * count * REQUEST_BYTES, is_read)
        for number, (count, is_read) in enumerate(made)
    ]
    calls = calls_of_requests(requested, b"p:", clustered=clustered)
    assert all(call.positions and len(call.read) <= MOST_READ for call in calls)
    assert sorted(udid for call in calls for udid in call.read) == sorted(
        device.udid for device in requested if device.read
    )
    asked = [
        (position, packed)
        for call in calls
        for (position, _), packed in zip(call.positions, call.parts[3::4], strict=True)
    ]
    assert sorted(asked) == [(n, device.packed) for n, device in enumerate(requested)]


# The claims of a device that are read with its first request


async def newest(claims: Claims, *udids: str, campaign: int = 99) -> dict[str, dict[int, float]]:
    """The claims that are read with a request of each device, in seconds from NOW."""
    requests = [request(1000, 1, campaign=campaign, udid=udid) for udid in udids]
    devices = [DeviceRequests(each.udid, each.packed(), read=True) for each in requests]
    read = (await claims.take(devices, NOW)).read
    return {udid: {each: at - NOW for each, at in held.items()} for udid, held in read.items()}


async def hold(claims: Claims, *udids: str, each: int) -> dict[int, float]:
    """Take so many claims for each device, one for each campaign. Returns them as `newest` does."""
    numbers = range(1, each + 1)
    requests = [request(1, campaign=number, udid=udid) for number in numbers for udid in udids]
    assert await outcomes(claims, *requests) == [None] * len(requests)
    return dict.fromkeys(numbers, 0.0)


async def test_the_claims_of_a_device_are_read_as_they_were_before(claims: Claims) -> None:
    before = [
        request(1, 0, campaign=1),
        request(2, 60.5, campaign=1),
        request(3, 10, campaign=2**40),
        request(4, 20, campaign=3, udid="other"),
    ]
    assert await outcomes(claims, *before) == [None] * 4
    held = {1: 60.5, 2**40: 10.0}
    assert await newest(claims, "phone", "nobody") == {"phone": held, "nobody": {}}
    assert await newest(claims, "phone", campaign=100) == {"phone": held | {99: 1.0}}


async def test_a_call_reads_so_many_claims_and_the_next_one_those_of_other_devices(
    claims: Claims,
) -> None:
    """A call that read all of them would block Redis for longer."""
    names = (f"phone {number}" for number in count())
    udids = list(islice((name for name in names if claim_tag(name) == 0), 10))
    held = await hold(claims, *udids, each=600)
    first = await newest(claims, *udids, campaign=1000)
    assert first == dict.fromkeys(udids[:6], held), "4,096 claims at most, and whole devices"
    held |= {1000: 1.0}
    second = await newest(claims, *udids[6:], campaign=1001)
    assert second == dict.fromkeys(udids[6:], held)
    await hold(claims, "very many", each=1025)
    assert await newest(claims, "very many", campaign=2000) == {}


CAPS = (Cap(2, 60), Cap(3, 600))


def counted(record: int, at: float, delay: int = 0, kind: int = COUNTED) -> ClaimRequest:
    """A request that caps count."""
    return request(record, at, delay, counted=kind)


async def test_a_refusal_says_how_long_it_holds(claims: Claims) -> None:
    await outcomes(claims, counted(1, 0), counted(2, 20, kind=RETURNABLE), caps=CAPS)
    devices = [DeviceRequests("phone", counted(3, 30).packed(), caps=pack_caps(1, CAPS))]
    denied = await claims.take(devices, NOW)
    assert denied.forbidden_by == [[[round((NOW + 20) * 1000), round((NOW + 60) * 1000), 1]]]


async def test_places_are_kept_for_as_long_as_they_count(
    claims: Claims, redis: RedisClient
) -> None:
    for n in range(400):
        at = n * 400.0
        await outcomes(claims, counted(n, at), now=NOW + at, caps=CAPS)
    key = claims_key(PREFIX, "phone")
    assert await redis.hstrlen(key, places_field(1)) <= 14 + 31 * ((600 + RETAIN) / 400 + 1)
    await outcomes(claims, request(999, delay=0, udid="once", counted=COUNTED), caps=CAPS)
    left = await redis.pttl(claims_key(PREFIX, "once")) / 1000
    assert 600 + RETAIN - 10 < left <= 600 + RETAIN + 10


async def test_the_history_of_a_device_is_read(claims: Claims, redis: RedisClient) -> None:
    await outcomes(claims, counted(1, 0.25, delay=60), counted(2, 7), caps=CAPS)
    reader = ClaimReader(redis=redis, prefix=PREFIX, deadline=5.0)
    history = await reader.history(DeviceKey(1, "phone"), [1, 2])
    assert (list(history.claims), history.sent) == ([1], (NOW + 0.25, NOW + 7))
    assert await reader.history(DeviceKey(2, "phone"), []) == ({}, (), None)
