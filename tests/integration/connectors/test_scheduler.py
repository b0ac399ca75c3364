"""The scheduler over real sockets: tries, breaker, fairness, what is withdrawn."""

import asyncio
import time
from collections import Counter
from typing import Any

from catalog.redis_connection import connect_redis
from connectors.breaker import BreakerPolicy
from connectors.call import CallLimits
from connectors.model import CallFault, Content, Failed
from connectors.scheduled_call import RetryPolicy
from connectors.scheduler import SchedulerLimits
from engine.connector.redis_breakers import RedisBreakers
from engine.process.failures import redis_may_recover
from tests.integration.connectors.scheduling import (
    SHORT,
    RunningScheduler,
    call_to,
    scheduling,
)
from tests.servers.http_service import ReceivedRequest, content, hanging, replying, serving
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually

POLICY = BreakerPolicy(window=20, failures=10, pause=0.5, lease=2.0)
ONCE = RetryPolicy(tries=1)


def faults(one: RunningScheduler) -> Counter[str]:
    return Counter(
        result.fault.value if isinstance(result, Failed) else type(result).__name__
        for result in one.results.values()
    )


async def until_all(one: RunningScheduler, count: int, deadline: float = 15.0) -> None:
    await eventually(lambda: len(one.results) >= count, deadline=deadline, what=f"{count} results")


async def hangs_by_path(heard: ReceivedRequest, writer: Any) -> None:
    """Hangs at /hangs."""
    await (hanging if heard.path == "/hangs" else content())(heard, writer)


async def test_another_try_may_do() -> None:
    seen: Counter[str] = Counter()

    async def third_time_lucky(heard: ReceivedRequest, writer: Any) -> None:
        seen[heard.id] += 1
        await (content() if seen[heard.id] == 3 else replying(502))(heard, writer)

    async with serving(third_time_lucky) as service, scheduling() as one:
        one.submit(call_to(service.url()))
        await until_all(one, 1)
        assert faults(one) == {"Content": 1}
        assert len({heard.id for heard in service.heard}) == 1
        assert [heard.body for heard in service.heard] == [service.heard[0].body] * 3


async def test_a_call_that_waits_for_another_try_holds_no_slot() -> None:
    limits = SchedulerLimits(company=1, in_all=1)
    retries = RetryPolicy(first=60.0)

    async def by_path(heard: ReceivedRequest, writer: Any) -> None:
        await (replying(503) if heard.path == "/busy" else content())(heard, writer)

    async with (
        serving(by_path) as service,
        scheduling(limits=limits, retries=retries) as one,
    ):
        one.submit(call_to(service.url("/busy")))
        one.submit(call_to(service.url("/next")))
        await until_all(one, 1)
        assert faults(one) == {"Content": 1}
        assert one.scheduler.unfinished == 1


async def test_retry_after_beyond_freshness_is_the_end() -> None:
    async with serving(replying(503, retry_after="61")) as service, scheduling() as one:
        one.submit(call_to(service.url(), fresh=60))
        await until_all(one, 1)
        assert faults(one) == {"connector_status": 1}
        assert len(service.heard) == 1


async def test_what_is_old_is_not_asked() -> None:
    async with serving(content()) as service, scheduling() as one:
        one.submit(call_to(service.url(), fresh=-1))
        await until_all(one, 1)
        assert faults(one) == {"connector_stale": 1}
        assert service.heard == []


async def test_the_breaker_spares_a_service_that_fails_and_finds_out_when_it_is_back() -> None:
    async with (
        serving(replying(500)) as service,
        scheduling(policy=POLICY, retries=ONCE) as one,
    ):
        for _ in range(10):
            one.submit(call_to(service.url()))
        await until_all(one, 10)
        await eventually(lambda: one.breakers.is_open(1))
        asked = len(service.heard)
        for _ in range(20):
            one.submit(call_to(service.url(), fresh=60))
        await eventually(lambda: len(service.heard) > asked)
        assert len(service.heard) == asked + 1, "one prober, no more"
        service.answer = content()
        await until_all(one, 30)
        assert faults(one)["Content"] >= 19


async def test_what_waits_for_an_open_breaker_ends_with_its_freshness() -> None:
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
        assert len(service.heard) == 10


async def test_two_workers_find_out_once(redis_url: str) -> None:
    """One learns it the hard way; the other, which never failed, does not call at all."""
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
        assert (len(service.heard), two.results) == (10, {})
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
        await eventually(lambda: len(service.heard) > 10)
        # The prober hangs: nobody else calls until its deadline has passed.
        assert len(service.heard) == 11
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
        scheduling(store=store, policy=POLICY, retries=ONCE, may_pass=redis_may_recover) as one,
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


async def test_a_service_that_hangs_keeps_nobody_else_waiting() -> None:
    limits = SchedulerLimits(company=8, in_all=32)
    slow = CallLimits(connect=5.0, call=5.0)
    async with (
        serving(hangs_by_path) as service,
        scheduling(limits=limits, call_limits=slow) as one,
    ):
        for company in range(2, 7):
            for _ in range(50):
                one.submit(call_to(service.url("/hangs"), company=company))
        await eventually(lambda: len(service.heard) >= 20)
        begin = time.monotonic()
        one.submit(call_to(service.url("/quick"), company=1))
        await until_all(one, 1)
        assert faults(one) == {"Content": 1}
        assert time.monotonic() - begin < 2.5, "not behind a deadline of 5 s"


async def test_ten_thousand_calls_of_one_company_do_not_delay_another() -> None:
    limits = SchedulerLimits(company=32, in_all=64)
    async with serving(content(after=0.01)) as service, scheduling(limits=limits) as one:
        for _ in range(10_000):
            one.submit(call_to(service.url("/many"), company=1))
        await until_all(one, 1)
        other = call_to(service.url("/one"), company=2)
        one.submit(other)
        await eventually(lambda: other.id in one.results)
        assert one.scheduler.unfinished > 9000
        assert isinstance(one.results[other.id], Content)


async def test_what_is_too_much_of_one_company_fails_at_once() -> None:
    limits = SchedulerLimits(company=4, in_all=16, unfinished=100)
    slow = CallLimits(connect=5.0, call=5.0)
    async with (
        serving(hangs_by_path) as service,
        scheduling(limits=limits, call_limits=slow) as one,
    ):
        for _ in range(80):
            one.submit(call_to(service.url("/hangs"), company=1))
        assert faults(one) == {"connector_overload": 30}
        one.submit(call_to(service.url("/quick"), company=2))
        await until_all(one, 31)
        assert faults(one) == {"connector_overload": 30, "Content": 1}


async def test_in_flight_is_bounded() -> None:
    together = most = 0

    async def counting(heard: ReceivedRequest, writer: Any) -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await content(after=0.02)(heard, writer)
        together -= 1

    limits = SchedulerLimits(company=5, in_all=500)
    async with serving(counting) as service, scheduling(limits=limits) as one:
        for _ in range(100):
            one.submit(call_to(service.url()))
        await until_all(one, 100)
        assert (most, one.scheduler.unfinished) == (5, 0)


async def test_what_drains_ends_and_what_waits_is_forgotten() -> None:
    limits = SchedulerLimits(company=2, in_all=2)
    async with serving(content(after=0.1)) as service, scheduling(limits=limits) as one:
        jobs = [
            one.scheduler.submit(call_to(service.url()), lambda _result: None) for _ in range(10)
        ]
        await eventually(lambda: len(service.heard) == 2)
        await one.scheduler.drain(jobs, 5.0)
        assert one.scheduler.unfinished == 0
        assert len(service.heard) == 2
        one.submit(call_to(service.url()))
        await until_all(one, 1)
        assert isinstance(next(iter(one.results.values())), Content)


async def test_an_error_of_ours_ends_the_scheduler() -> None:
    def broken(_result: Any) -> None:
        raise LookupError("a fault of the engine")

    async with serving(content()) as service, scheduling(fails=LookupError) as one:
        one.scheduler.submit(call_to(service.url()), broken)
        await eventually(one.running.done)


async def test_a_url_that_makes_no_request() -> None:
    async with scheduling(call_limits=SHORT) as one:
        one.submit(call_to("http://[::1/"))
        one.submit(call_to("http://127.0.0.1:1/\ud800"))
        await until_all(one, 2)
        assert set(faults(one)) <= {CallFault.REQUEST.value, CallFault.FORBIDDEN.value}
