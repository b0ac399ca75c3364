"""The claims of a device that are read with its first request, on every kind of Redis."""

from itertools import count, islice

import pytest

from catalog.redis_connection import RedisClient
from engine.process.metrics import Metrics
from engine.redis.claims import Claims, claim_tag
from tests.redis.claim_requests import NOW, claims_on, outcomes, request, take_and_read


@pytest.fixture
def claims(redis: RedisClient, metrics: Metrics) -> Claims:
    return claims_on(redis, metrics)


async def newest(claims: Claims, *udids: str, campaign: int = 99) -> dict[str, dict[int, float]]:
    """The claims that are read with a request of each device, in seconds from NOW."""
    requests = [request(1000, 1, campaign=campaign, udid=udid) for udid in udids]
    _, read = await take_and_read(claims, requests, NOW, set(udids))
    return {
        udid: {number: at - NOW for number, at in of_device.items()}
        for udid, of_device in read.items()
    }


async def test_the_claims_of_a_device_are_read_as_they_were_before(claims: Claims) -> None:
    before = [
        request(1, 0, campaign=1),
        request(2, 60.5, campaign=1),
        request(3, 10, campaign=2**40),
        request(4, 20, campaign=3, udid="other"),
    ]
    assert await outcomes(claims, *before) == [None] * 4
    assert await newest(claims, "phone", "nobody") == {
        "phone": {1: 60.5, 2**40: 10.0},
        "nobody": {},
    }
    assert await newest(claims, "phone", campaign=100) == {"phone": {1: 60.5, 2**40: 10.0, 99: 1.0}}


async def hold(claims: Claims, *udids: str, each: int) -> dict[int, float]:
    """Take so many claims for each device, one for each campaign. Returns them as `newest` does."""
    requests = [
        request(1, campaign=number, udid=udid) for number in range(1, each + 1) for udid in udids
    ]
    assert await outcomes(claims, *requests) == [None] * len(requests)
    return dict.fromkeys(range(1, each + 1), 0.0)


async def test_a_device_with_very_many_claims_is_not_read(claims: Claims) -> None:
    await hold(claims, "phone", each=1025)
    assert await newest(claims, "phone", "other", campaign=2000) == {"other": {}}
    assert await newest(claims, "other", campaign=2001) == {"other": {2000: 1.0}}


async def test_a_device_with_many_claims_is_read(claims: Claims) -> None:
    held = await hold(claims, "phone", each=1024)
    assert await newest(claims, "phone", campaign=2000) == {"phone": held}


async def test_a_call_reads_so_many_claims_and_the_next_one_those_of_other_devices(
    claims: Claims,
) -> None:
    """A call that read all of them would block Redis for longer."""
    names = (f"phone {number}" for number in count())
    udids = list(islice((name for name in names if claim_tag(name.encode()) == 0), 10))
    held = await hold(claims, *udids, each=600)
    first = await newest(claims, *udids, campaign=1000)
    assert first == dict.fromkeys(udids[:6], held), "4,096 claims at most, and whole devices"
    held |= {1000: 1.0}
    second = await newest(claims, *udids[6:], campaign=1001)
    assert second == dict.fromkeys(udids[6:], held)


async def test_devices_of_a_batch_are_read_however_many_claims_they_have(claims: Claims) -> None:
    udids = [f"phone {number}" for number in range(100)]
    held = await hold(claims, *udids, each=100)
    assert await newest(claims, *udids, campaign=101) == dict.fromkeys(udids, held)
