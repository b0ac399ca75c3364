"""A slot is always freed and a probe is always reported, however and whenever a call ends."""

import asyncio
from collections import Counter
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.breaker import BreakerPolicy, LocalBreakers
from connectors.breaker_client import BreakerClient
from connectors.call import Reply
from connectors.errors import CallError
from connectors.model import CallFault, CallResult, Content, Failed
from connectors.request import Request
from connectors.scheduled_call import RetryPolicy, ScheduledCall
from connectors.scheduler import CallScheduler, SchedulerLimits
from engine.process.cancelling import cancel
from tests.integration.connectors.scheduling import call_to

GOOD = Reply(200, {}, b'{"format": "html", "html": "x"}')
LIMITS = SchedulerLimits(company=2, in_all=3, unfinished=40)
POLICY = BreakerPolicy(window=4, failures=2, pause=0.001, lease=0.5)


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

    async def close_expired(self) -> None:
        pass

    def answer(self, outcome: str) -> None:
        """The oldest request without an answer."""
        while self.open:
            if not (answer := self.open.pop(0)).done():
                answer.set_result(outcome)
                return


class Trial:
    """A scheduler over the scripted service."""

    def __init__(self) -> None:
        local = LocalBreakers(POLICY)
        self.breakers = BreakerClient(
            store=LocalBreakers(POLICY),
            local=local,
            name="one",
            clock=asyncio.get_running_loop().time,
            is_temporary=lambda _error: False,
            on_store_error=lambda: None,
        )
        self.service = ScriptedService()
        self.scheduler = CallScheduler(
            caller=self.service,  # type: ignore[arg-type]
            breakers=self.breakers,
            retries=RetryPolicy(tries=2, first=0.0),
            limits=LIMITS,
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
        for _ in range(10_000):
            if self.jobs[-1].task is not None:
                return
            await asyncio.sleep(0)
        raise AssertionError("its turn does not come")

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
            for _ in range(LIMITS.company + 1):
                trial.submit(one)
        await trial.run_until_idle()
        assert not trial.running.done(), trial.running
        assert trial.scheduler.unfinished == 0
        assert trial.scheduler._dispatcher._queue.free == LIMITS.in_all
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
        for _ in range(4 * LIMITS.in_all):
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
        for _ in range(POLICY.failures):
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
