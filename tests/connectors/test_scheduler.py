"""The scheduler: tries, fairness, draining, breakers, slots."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.redis_connection import connect_redis
from connectors.breaker import BreakerPolicy, Breakers
from connectors.client import CallLimits, Reply
from connectors.errors import CallError
from connectors.model import CallFault, CallResult, Content, Failed
from connectors.request import Request
from connectors.schedule import CallScheduler, Limits, ScheduledCall
from engine.connector.stores import RedisBreakers
from engine.process.failures import redis_may_recover
from engine.process.lifecycle import cancel
from tests.connectors.scheduling import (
    ONCE,
    OwnBreakers,
    call_to,
    faults,
    scheduling,
    until_all,
)
from tests.servers.http_service import ReceivedRequest, content, hanging, replying, serving
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually


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
    limits = Limits(company=1, in_all=1, first_wait=60.0)

    async def by_path(received: ReceivedRequest, writer: Any) -> None:
        await (replying(503) if received.path == "/busy" else content())(received, writer)

    async with (
        serving(by_path) as service,
        scheduling(limits=limits) as one,
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


async def test_ten_thousand_calls_of_one_company_do_not_delay_another() -> None:
    limits = Limits(company=32, in_all=64, first_wait=0.05)
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
    limits = Limits(company=4, in_all=16, unfinished=100)
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

    limits = Limits(company=5, in_all=500, first_wait=0.05)
    async with serving(counting) as service, scheduling(limits=limits) as one:
        for _ in range(100):
            one.submit(call_to(service.url()))
        await until_all(one, 100)
        assert (most, one.scheduler.unfinished) == (5, 0)


async def test_running_calls_finish_and_waiting_calls_are_dropped() -> None:
    limits = Limits(company=2, in_all=2, first_wait=0.05)
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


POLICY = BreakerPolicy(window=20, failures=10, pause=0.5, lease=2.0)


async def test_the_breaker_spares_a_service_that_fails_and_finds_out_when_it_is_back() -> None:
    async with (
        serving(replying(500)) as service,
        scheduling(policy=POLICY, limits=ONCE) as one,
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
        scheduling(policy=policy, limits=ONCE) as one,
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
        scheduling(store=store(), policy=policy, limits=ONCE, name="one") as one,
        scheduling(store=store(), policy=policy, limits=ONCE, name="two") as two,
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


async def test_without_redis_breakers_are_the_process_s_own(own_redis: RedisServer) -> None:
    redis = connect_redis(own_redis.url, timeout=0.5)
    store = RedisBreakers(redis=redis, prefix="t:", policy=POLICY, deadline=0.5)
    async with (
        serving(content()) as service,
        scheduling(store=store, policy=POLICY, limits=ONCE, is_temporary=redis_may_recover) as one,
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


DEFAULT = Limits()


def at(
    tried: int, chance: float = 0.0, after: float | None = None, fresh: float = 100.0
) -> float | None:
    error = CallError(CallFault.STATUS, "", retriable=True, retry_after=after)
    return DEFAULT.next_try(tried=tried, error=error, now=10.0, fresh_until=fresh, chance=chance)


@pytest.mark.parametrize(
    ("tried", "chance", "after", "expected"),
    [
        (1, 0.0, None, 10.25),
        (1, 0.5, None, 10.375),
        (2, 0.0, None, 10.5),
        (2, 0.5, None, 10.75),
        (1, 0.5, 0.0, 10.375),
        (1, 0.5, 0.1, 10.375),
        (1, 0.5, 7.0, 17.0),
        (1, 0.5, 89.0, 99.0),
        (1, 0.5, 90.0, None),
        (3, 0.0, None, None),
        (3, 0.0, 1.0, None),
    ],
)
def test_the_next_try(
    tried: int, chance: float, after: float | None, expected: float | None
) -> None:
    assert at(tried, chance, after) == expected


@pytest.mark.parametrize(("fresh", "expected"), [(10.25, None), (10.26, 10.25), (9.0, None)])
def test_no_try_is_made_for_what_is_old_by_then(fresh: float, expected: float | None) -> None:
    assert at(1, fresh=fresh) == expected


GOOD = Reply(200, {}, b'{"format": "html", "html": "x"}')
FEW = Limits(company=2, in_all=3, unfinished=40, tries=2, first_wait=0.0)
SHORT_POLICY = BreakerPolicy(window=4, failures=2, pause=0.001, lease=0.5)


def _timeout() -> Reply:
    raise CallError(CallFault.TIMEOUT, "no reply in time", retriable=True, counts=True)


def _refused() -> Reply:
    raise CallError(CallFault.STATUS, "status 404")


def _unforeseen() -> Reply:
    raise OverflowError("what nobody thought of")


def _good() -> Reply:
    return GOOD


OUTCOMES: dict[str, Callable[[], Reply]] = {
    "good": _good,
    "timeout": _timeout,
    "refused": _refused,
    "unforeseen": _unforeseen,
}


class ScriptedService:
    """Stands in for the caller: the test sets each answer and its time."""

    def __init__(self) -> None:
        self.open: list[asyncio.Future[str]] = []

    async def send(self, _company_id: int, _request: Request) -> Reply:
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.open.append(answer)
        return OUTCOMES[await answer]()

    def answer(self, outcome: str) -> None:
        """The oldest request without an answer."""
        while self.open:
            if not (answer := self.open.pop(0)).done():
                answer.set_result(outcome)
                return


class Trial:
    """A scheduler over the scripted service."""

    def __init__(self) -> None:
        self.breakers = Breakers(
            store=OwnBreakers(),
            policy=SHORT_POLICY,
            name="one",
            clock=asyncio.get_running_loop().time,
            is_temporary=lambda _error: True,
            on_store_error=lambda: None,
        )
        self.service = ScriptedService()
        self.scheduler = CallScheduler(
            caller=self.service,  # type: ignore[arg-type]
            breakers=self.breakers,
            limits=FEW,
            agent="test",
            clock=asyncio.get_running_loop().time,
        )
        self.running = asyncio.create_task(self.scheduler.run())
        self.jobs: list[ScheduledCall] = []
        self.results: Counter[int] = Counter()
        self.faults: Counter[str] = Counter()

    def submit(self, company: int) -> None:
        call = call_to("http://service.example/", company=company)
        number = len(self.jobs)

        def on_result(result: CallResult) -> None:
            self.results[number] += 1
            self.faults[result.fault if isinstance(result, Failed) else type(result).__name__] += 1

        # (Epoch seconds, in which the call says how long it is fresh, lie beyond the loop's time.)
        self.jobs.append(self.scheduler.submit(call, on_result))

    async def until_started(self) -> None:
        """Wait until the last job's task is created and has not run."""
        async with asyncio.timeout(5):
            while self.jobs[-1].task is None:  # noqa: ASYNC110  # (each step of the loop counts)
                await asyncio.sleep(0)

    async def run_until_idle(self) -> None:
        """Answer all calls with success until none is left, then call each company once more."""
        for _ in range(2000):
            if not self.scheduler.unfinished:
                return
            self.service.answer("good")
            await asyncio.sleep(0.0005)  # a breaker's pause, in which there is nothing to await
        raise AssertionError(f"{self.scheduler.unfinished} calls never end: {self.faults}")


company = st.integers(1, 3)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), company),
        st.tuples(st.just("forget"), st.integers(0, 30)),
        st.tuples(st.just("answer"), st.sampled_from(sorted(OUTCOMES))),
        st.tuples(st.just("turns"), st.integers(1, 4)),
    ),
    max_size=40,
)


@settings(max_examples=120, deadline=None)
@given(steps=steps)
def test_every_slot_is_released(steps: list[tuple[str, int | str]]) -> None:
    asyncio.run(_every_slot_is_released(steps))


async def _every_slot_is_released(steps: list[tuple[str, int | str]]) -> None:
    trial = Trial()
    forgotten: set[int] = set()
    try:
        for what, value in steps:
            await _step(trial, forgotten, what, value)
        await trial.run_until_idle()
        for one in (1, 2, 3):
            for _ in range(FEW.company + 1):
                trial.submit(one)
        await trial.run_until_idle()
        assert not trial.running.done(), trial.running
        assert trial.scheduler.unfinished == 0
        assert trial.scheduler.queue.free == FEW.in_all
        for number in range(len(trial.jobs)):
            assert trial.results[number] == (0 if number in forgotten else 1)
    finally:
        await cancel([trial.running])


async def _step(trial: Trial, forgotten: set[int], what: str, value: int | str) -> None:
    if what == "submit":
        trial.submit(int(value))
    elif what == "answer":
        trial.service.answer(str(value))
    elif what == "turns":
        for _ in range(int(value)):
            await asyncio.sleep(0)
    elif int(value) < len(trial.jobs) and not trial.jobs[int(value)].ended:
        trial.scheduler.forget([trial.jobs[int(value)]])
        forgotten.add(int(value))


async def test_a_job_that_is_cancelled_before_its_first_step() -> None:
    trial = Trial()
    try:
        for _ in range(4 * FEW.in_all):
            trial.submit(1)
            await trial.until_started()
            trial.scheduler.forget([trial.jobs[-1]])
        trial.submit(1)
        await trial.run_until_idle()
        assert trial.faults == {"Content": 1}
    finally:
        await cancel([trial.running])


async def test_a_probe_that_is_cancelled_before_its_first_step() -> None:
    trial = Trial()
    try:
        for _ in range(SHORT_POLICY.failures):
            trial.submit(1)
        while not trial.breakers.is_open(1):
            trial.service.answer("unforeseen")
            await asyncio.sleep(0)
        trial.submit(1)
        await trial.until_started()
        trial.scheduler.forget([trial.jobs[-1]])
        trial.submit(1)
        await trial.run_until_idle()
        assert trial.faults[Content.__name__] == 1
    finally:
        await cancel([trial.running])
