"""The scheduler: tries, fairness, bounds, breakers, draining. A script stands in for services."""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.client import Reply
from connectors.model import Call, CallFault, CallResult, Failed
from connectors.schedule import Breaker, CallScheduler, ScheduleLimits
from engine.process.lifecycle import cancel
from tests.connectors.calls import call_to
from tests.servers.waiting import eventually

URL = "http://service.example/"
GOOD = Reply(200, {}, b'{"format": "html", "html": "x"}')
BUSY = Reply(503, {}, b"")
REFUSED = Reply(404, {}, b"")
ERRORS: dict[str, Exception] = {
    "timeout": Failed(CallFault.TIMEOUT, "no reply in time", retriable=True, counts=True),
    "unforeseen": OverflowError("what nobody thought of"),
}


class Service:
    """All customers' services: each request waits for `answer`, or gets `reply` at once."""

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self.open: list[tuple[int, asyncio.Future[Reply]]] = []
        self.requests: list[int] = []  # the companies

    async def send(self, request: Any) -> Reply:
        company_id = int(request.url.path[1:])
        self.requests.append(company_id)
        if self.reply is not None:
            await asyncio.sleep(0)
            return self.reply
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.open.append((company_id, answer))
        return await answer

    def answer(self, reply: Reply | str = GOOD) -> None:
        """The oldest request without an answer; a word is an error of ERRORS."""
        while self.open:
            _, answer = self.open.pop(0)
            if not answer.done():
                if isinstance(reply, str):
                    answer.set_exception(ERRORS[reply])
                else:
                    answer.set_result(reply)
                return


class Trial:
    """A running scheduler; `faults` counts the results."""

    def __init__(self, limits: ScheduleLimits) -> None:
        self.service = Service()
        self.scheduler = CallScheduler(
            caller=self.service,  # type: ignore[arg-type]
            limits=limits,
            agent="test",
        )
        self.running = asyncio.create_task(self.scheduler.run())
        self.calls: list[Call] = []
        self.results: Counter[int] = Counter()
        self.faults: Counter[str] = Counter()

    def submit(self, company: int = 1, *, fresh: float = 60.0, weight: int = 1) -> None:
        number = len(self.calls)

        def on_result(result: CallResult) -> None:
            self.results[number] += 1
            self.faults[result.fault if isinstance(result, Failed) else type(result).__name__] += 1

        call = call_to(f"{URL}{company}", company=company, fresh=fresh)
        call.weight = weight
        self.calls.append(call)
        self.scheduler.submit(call, on_result)

    async def until(self, faults: dict[str, int]) -> None:
        await eventually(lambda: self.faults == faults, what=f"{faults}, not {self.faults}")

    async def until_idle(self) -> None:
        """Answer all calls with success until none is left."""
        async with asyncio.timeout(90):
            while self.scheduler.unfinished:
                self.service.answer()
                await asyncio.sleep(0.0005)


@asynccontextmanager
async def trial(fails: type[Exception] | None = None, **limits: Any) -> AsyncIterator[Trial]:
    """It must run to the end of the context, unless it `fails` as expected."""
    one = Trial(ScheduleLimits(**{"first_wait": 0.01, **limits}))
    try:
        yield one
        if fails is None:
            assert not one.running.done(), one.running
        else:
            assert isinstance(one.running.exception(), fails)
    finally:
        await cancel([one.running])


async def passes() -> None:
    """Some of the event loop: an answer frees its slot, and the next call sends its request."""
    for _ in range(8):
        await asyncio.sleep(0)


async def test_a_failed_try_is_repeated_and_holds_no_slot_meanwhile() -> None:
    async with trial(company=1, in_all=1, first_wait=0.5) as one:
        one.service.reply = BUSY
        one.submit()
        await eventually(lambda: one.calls[0].retry is not None)
        one.service.reply = GOOD
        one.submit()
        await one.until({"Content": 1})
        assert one.scheduler.unfinished == 1
        await one.until({"Content": 2})
        assert one.calls[0].tried == 2


async def test_tries_end() -> None:
    async with trial() as one:
        one.service.reply = BUSY
        one.submit()
        await one.until({"connector_status": 1})
        assert len(one.service.requests) == 3
        one.service.reply = Reply(503, {"retry-after": "61"}, b"")
        one.submit()
        await one.until({"connector_status": 2})
        assert len(one.service.requests) == 4, "no longer fresh after the wait"
        one.service.reply = REFUSED
        one.submit()
        await one.until({"connector_status": 3})
        assert len(one.service.requests) == 5, "no repetition helps"


async def test_a_call_that_has_ended_is_freed_without_the_garbage_collector(
    request: pytest.FixtureRequest,
) -> None:
    """Full collections are rare, and a call holds its record."""
    async with trial(tries=1) as one:
        gc.collect()
        gc.disable()
        request.addfinalizer(gc.enable)
        for reply in (GOOD, BUSY, None):
            one.service.reply = reply
            call = call_to(f"{URL}1")
            one.scheduler.submit(call, partial(lambda _call, _result: None, call))
            await passes()
            one.scheduler.forget([call])
            del call
            await passes()
            assert not any(isinstance(each, Call) for each in gc.get_objects()), reply


@pytest.mark.parametrize(("weight", "too_many"), [(1, 30), (5, 70)])
async def test_calls_over_a_companys_share_fail_at_once(weight: int, too_many: int) -> None:
    async with trial(company=4, in_all=16, unfinished=100) as one:
        for _ in range(80):
            one.submit(1, weight=weight)
        one.submit(2)
        await passes()
        assert one.faults == {"connector_overload": too_many}
        await one.until_idle()


@settings(max_examples=40, deadline=None)
@given(order=st.lists(st.integers(1, 4), max_size=40), in_all=st.integers(1, 16))
def test_companies_start_in_turn_and_within_their_bounds(order: list[int], in_all: int) -> None:
    asyncio.run(_companies_start_in_turn(order, in_all))


async def _companies_start_in_turn(order: list[int], in_all: int) -> None:
    async with trial(company=3, in_all=in_all) as one:
        one.scheduler.note_unpublished(one.scheduler.limits.unpublished)
        for company in order:
            one.submit(company)
        one.scheduler.note_unpublished(-one.scheduler.limits.unpublished)
        left, started = Counter(order), Counter[int]()
        while left.total():
            await passes()
            new = Counter(one.service.requests) - started
            started += new
            left -= new
            in_flight = Counter(company for company, _ in one.service.open)
            assert in_flight.total() <= in_all
            assert all(number <= 3 for number in in_flight.values())
            assert in_flight, "none is in flight though calls wait"
            for company in left:
                free = in_all - in_flight.total()
                may_start = free and in_flight[company] < 3
                crowds = in_flight[company] and in_flight[company] >= free - in_all // 8
                assert not may_start or crowds
            one.service.answer()
        await one.until_idle()
        assert one.faults["Content"] == len(order)


async def test_an_error_of_ours_ends_the_scheduler() -> None:
    def broken(_result: Any) -> None:
        raise LookupError("a fault of the engine")

    async with trial(fails=LookupError) as one:
        one.service.reply = GOOD
        one.scheduler.submit(call_to(f"{URL}1"), broken)
        await eventually(one.running.done)


async def test_the_breaker_spares_a_service_that_fails_and_finds_out_when_it_is_back() -> None:
    async with trial(tries=1, breaker_pause=0.5) as one:
        one.service.reply = BUSY
        for _ in range(10):
            one.submit()
        await one.until({"connector_status": 10})
        one.service.reply = None
        for _ in range(20):
            one.submit()
        one.submit(fresh=0.1)
        await one.until({"connector_status": 10, "connector_breaker": 1})
        assert one.scheduler.breaker_counts() == {"open": 1}
        await eventually(lambda: len(one.service.requests) > 10)
        await asyncio.sleep(0.3)
        assert len(one.service.requests) == 11, "one try, no more"
        assert one.scheduler.breaker_counts() == {"half_open": 1}
        await one.until_idle()
        assert one.faults == {"connector_status": 10, "connector_breaker": 1, "Content": 20}


GOODS, BADS = (False,), (True,)


@pytest.mark.parametrize(
    ("outcomes", "opens"),
    [
        (BADS * 10, True),
        (GOODS * 11 + BADS * 9, False),
        (GOODS * 1000 + BADS * 10, True),
        (BADS * 9 + GOODS * 11 + BADS * 9, False),
        ((BADS + GOODS * 2) * 50, False),
    ],
)
def test_a_breaker_opens_at_half_of_the_last_twenty(outcomes: Sequence[bool], opens: bool) -> None:
    breaker = Breaker()
    for failed in outcomes:
        breaker.end(failed, decides=breaker.begin(), now=0.0)
    assert breaker.is_open == opens


def test_one_call_decides_whether_a_breaker_closes() -> None:
    breaker = Breaker()
    running = [breaker.begin() for _ in range(15)]
    for decides in running[:10]:
        breaker.end(True, decides=decides, now=1.0)
    for decides in running[10:]:
        breaker.end(False, decides=decides, now=2.0)
    assert not breaker.allows(10.9), "calls that had begun before decide nothing"
    assert breaker.allows(11.0)
    assert breaker.begin()
    assert not breaker.allows(12.0)
    breaker.end(None, decides=True, now=12.0)
    assert breaker.allows(12.0), "dropped before it was made"
    breaker.end(True, decides=breaker.begin(), now=13.0)
    assert not breaker.allows(22.9)
    breaker.end(False, decides=breaker.begin(), now=23.0)
    assert breaker.status == "closed"


steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(1, 3)),
        st.tuples(st.just("forget"), st.integers(0, 30)),
        st.tuples(st.just("answer"), st.sampled_from([GOOD, REFUSED, *ERRORS])),
        st.tuples(st.just("turns"), st.integers(1, 4)),
    ),
    max_size=40,
)


@settings(max_examples=40, deadline=None)
@given(steps=steps)
def test_every_slot_is_released(steps: list[tuple[str, Any]]) -> None:
    asyncio.run(_every_slot_is_released(steps))


async def _every_slot_is_released(steps: list[tuple[str, Any]]) -> None:
    forgotten: set[int] = set()
    few: dict[str, Any] = {"company": 2, "in_all": 3, "unfinished": 40, "tries": 2}
    async with trial(**few, first_wait=0.0, breaker_pause=0.001) as one:
        for what, value in steps:
            if what == "submit":
                one.submit(value)
            elif what == "answer":
                one.service.answer(value)
            elif what == "turns":
                for _ in range(value):
                    await asyncio.sleep(0)
            elif value < len(one.calls) and not one.calls[value].ended:
                one.scheduler.forget([one.calls[value]])
                forgotten.add(value)
        await one.until_idle()
        before = len(one.service.requests)
        for company in (1, 2, 3):
            one.submit(company)
        await passes()
        assert len(one.service.requests) == before + 3, "each slot is free"
        await one.until_idle()
        assert one.results == Counter(set(range(len(one.calls))) - forgotten)
