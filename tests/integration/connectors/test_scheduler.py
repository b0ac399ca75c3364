"""The scheduler over real sockets: tries, fairness, draining."""

import time
from collections import Counter
from typing import Any

from connectors.breaker import BreakerPolicy
from connectors.call import CallLimits
from connectors.model import CallFault, Content
from connectors.scheduled_call import RetryPolicy
from connectors.scheduler import SchedulerLimits
from tests.integration.connectors.scheduling import (
    SHORT,
    call_to,
    faults,
    scheduling,
    until_all,
)
from tests.servers.http_service import ReceivedRequest, content, hanging, replying, serving
from tests.servers.waiting import eventually

POLICY = BreakerPolicy(window=20, failures=10, pause=0.5, lease=2.0)
ONCE = RetryPolicy(tries=1)


async def hangs_by_path(received: ReceivedRequest, writer: Any) -> None:
    """Hangs at /hangs."""
    await (hanging if received.path == "/hangs" else content())(received, writer)


async def test_another_try_may_do() -> None:
    seen: Counter[str] = Counter()

    async def third_time_lucky(received: ReceivedRequest, writer: Any) -> None:
        seen[received.id] += 1
        await (content() if seen[received.id] == 3 else replying(502))(received, writer)

    async with serving(third_time_lucky) as service, scheduling() as one:
        one.submit(call_to(service.url()))
        await until_all(one, 1)
        assert faults(one) == {"Content": 1}
        assert len({received.id for received in service.received}) == 1
        assert [received.body for received in service.received] == [service.received[0].body] * 3


async def test_a_call_that_waits_for_another_try_holds_no_slot() -> None:
    limits = SchedulerLimits(company=1, in_all=1)
    retries = RetryPolicy(first=60.0)

    async def by_path(received: ReceivedRequest, writer: Any) -> None:
        await (replying(503) if received.path == "/busy" else content())(received, writer)

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
        assert len(service.received) == 1


async def test_old_calls_are_not_sent() -> None:
    async with serving(content()) as service, scheduling() as one:
        one.submit(call_to(service.url(), fresh=-1))
        await until_all(one, 1)
        assert faults(one) == {"connector_stale": 1}
        assert service.received == []


async def test_a_service_that_hangs_delays_no_other_company() -> None:
    limits = SchedulerLimits(company=8, in_all=32)
    slow = CallLimits(connect=5.0, call=5.0)
    async with (
        serving(hangs_by_path) as service,
        scheduling(limits=limits, call_limits=slow) as one,
    ):
        for company in range(2, 7):
            for _ in range(50):
                one.submit(call_to(service.url("/hangs"), company=company))
        await eventually(lambda: len(service.received) >= 20)
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


async def test_calls_over_a_companys_limit_fail_at_once() -> None:
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

    async def counting(received: ReceivedRequest, writer: Any) -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await content(after=0.02)(received, writer)
        together -= 1

    limits = SchedulerLimits(company=5, in_all=500)
    async with serving(counting) as service, scheduling(limits=limits) as one:
        for _ in range(100):
            one.submit(call_to(service.url()))
        await until_all(one, 100)
        assert (most, one.scheduler.unfinished) == (5, 0)


async def test_running_calls_finish_and_waiting_calls_are_dropped() -> None:
    limits = SchedulerLimits(company=2, in_all=2)
    async with serving(content(after=0.1)) as service, scheduling(limits=limits) as one:
        jobs = [
            one.scheduler.submit(call_to(service.url()), lambda _result: None) for _ in range(10)
        ]
        await eventually(lambda: len(service.received) == 2)
        await one.scheduler.drain(jobs, 5.0)
        assert one.scheduler.unfinished == 0
        assert len(service.received) == 2
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
