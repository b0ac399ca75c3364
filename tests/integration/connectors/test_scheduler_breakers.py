"""Breakers as the scheduler uses them, over real sockets: alone, and shared by two workers."""

import asyncio
from collections import Counter
from typing import Any

from catalog.redis_connection import connect_redis
from connectors.breaker import BreakerPolicy
from connectors.call import CallLimits
from connectors.scheduled_call import RetryPolicy
from engine.connector.redis_breakers import RedisBreakers
from engine.process.failures import redis_may_recover
from tests.integration.connectors.scheduling import (
    call_to,
    faults,
    scheduling,
    until_all,
)
from tests.servers.http_service import ReceivedRequest, content, hanging, replying, serving
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually

POLICY = BreakerPolicy(window=20, failures=10, pause=0.5, lease=2.0)
ONCE = RetryPolicy(tries=1)


async def hangs_by_path(received: ReceivedRequest, writer: Any) -> None:
    """Hangs at /hangs."""
    await (hanging if received.path == "/hangs" else content())(received, writer)


async def test_the_breaker_spares_a_service_that_fails_and_finds_out_when_it_is_back() -> None:
    async with (
        serving(replying(500)) as service,
        scheduling(policy=POLICY, retries=ONCE) as one,
    ):
        for _ in range(10):
            one.submit(call_to(service.url()))
        await until_all(one, 10)
        await eventually(lambda: one.breakers.is_open(1))
        requested = len(service.received)
        for _ in range(20):
            one.submit(call_to(service.url(), fresh=60))
        await eventually(lambda: len(service.received) > requested)
        assert len(service.received) == requested + 1, "one prober, no more"
        service.answer = content()
        await until_all(one, 30)
        assert faults(one)["Content"] >= 19


async def test_calls_waiting_for_an_open_breaker_expire() -> None:
    policy = BreakerPolicy(window=20, failures=10, pause=60.0)
    async with (
        serving(replying(500)) as service,
        scheduling(policy=policy, retries=ONCE) as one,
    ):
        for _ in range(10):
            one.submit(call_to(service.url()))
        await until_all(one, 10)
        await eventually(lambda: one.breakers.is_open(1))
        for _ in range(5):
            one.submit(call_to(service.url(), fresh=0.5))
        await until_all(one, 15)
        assert faults(one) == {"connector_status": 10, "connector_breaker": 5}
        assert len(service.received) == 10


async def test_two_workers_find_out_once(redis_url: str) -> None:
    """One process sees the failures; the other one, without failures, makes no calls."""
    policy = BreakerPolicy(window=20, failures=10, pause=30.0)
    redis = connect_redis(redis_url)

    def store() -> RedisBreakers:
        return RedisBreakers(redis=redis, prefix="t:", policy=policy, deadline=2.0)

    async with (
        serving(replying(500)) as service,
        scheduling(store=store(), policy=policy, retries=ONCE, name="one") as one,
        scheduling(store=store(), policy=policy, retries=ONCE, name="two") as two,
    ):
        for _ in range(10):
            one.submit(call_to(service.url()))
        await until_all(one, 10)
        await eventually(lambda: one.breakers.is_open(1))
        two.submit(call_to(service.url()))
        await eventually(lambda: two.breakers.is_open(1))
        assert (len(service.received), two.results) == (10, {})
    await redis.aclose()


BRIEF = CallLimits(connect=2.0, call=3.0)  # what hangs ends by it, what answers keeps it


async def test_of_two_workers_one_tries_and_both_go_on(redis_url: str) -> None:
    redis = connect_redis(redis_url)

    def store() -> RedisBreakers:
        return RedisBreakers(redis=redis, prefix="t:", policy=POLICY, deadline=2.0)

    async with (
        serving(replying(500)) as service,
        scheduling(
            store=store(), policy=POLICY, retries=ONCE, call_limits=BRIEF, name="one"
        ) as one,
        scheduling(
            store=store(), policy=POLICY, retries=ONCE, call_limits=BRIEF, name="two"
        ) as two,
    ):
        for _ in range(10):
            one.submit(call_to(service.url()))
        await until_all(one, 10)
        await eventually(lambda: one.breakers.is_open(1))
        service.answer = hanging
        for each in (one, two):
            for _ in range(5):
                each.submit(call_to(service.url()))
        await eventually(lambda: len(service.received) > 10)
        # The prober hangs: nobody else calls until its deadline has passed.
        assert len(service.received) == 11
        service.answer = content()
        await until_all(one, 15)
        await until_all(two, 5)
        assert faults(two) + faults(one) == Counter(
            {"connector_status": 10, "Content": 9, "connector_timeout": 1}
        )
    await redis.aclose()


async def test_without_redis_breakers_are_the_process_s_own(own_redis: RedisServer) -> None:
    redis = connect_redis(own_redis.url, timeout=0.5)
    store = RedisBreakers(redis=redis, prefix="t:", policy=POLICY, deadline=0.5)
    async with (
        serving(content()) as service,
        scheduling(store=store, policy=POLICY, retries=ONCE, is_temporary=redis_may_recover) as one,
    ):
        one.submit(call_to(service.url()))
        await until_all(one, 1)
        await asyncio.to_thread(own_redis.kill)
        service.answer = replying(500)
        for _ in range(10):
            one.submit(call_to(service.url()))
        await until_all(one, 11)
        await eventually(lambda: one.breakers.is_open(1))
        service.answer = content()
        one.submit(call_to(service.url()))
        await until_all(one, 12)
        assert faults(one) == {"Content": 2, "connector_status": 10}
    await redis.aclose()
