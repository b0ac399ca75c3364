"""Makes the calls of all companies: in turn, within bounds, with retries, past breakers.

Each process has one scheduler.
"""

import asyncio
import random
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial

import structlog

from connectors.client import ServiceCaller, call_service
from connectors.model import BreakerStatus, Call, CallFault, CallResult, Failed

log = structlog.get_logger(__name__)

OnResult = Callable[[CallResult], None]

WINDOW = 20  # calls, of which half must fail
PAUSE_SECONDS = 10.0
_SWEEP_SECONDS = 0.25  # old calls expire, and open breakers let a call through


@dataclass(slots=True)
class Breaker:
    """The breaker of one company's service; each process has breakers of its own. Pure.

    It opens when half of the last calls have failed. After `pause` seconds one call is tried: its
    outcome closes the breaker or opens it again. True in `outcomes` is a failure; times are epoch
    seconds.
    """

    pause: float = PAUSE_SECONDS
    outcomes: deque[bool] = field(default_factory=partial(deque[bool], maxlen=WINDOW))
    open_until: float | None = None
    is_trying: bool = False

    @property
    def is_open(self) -> bool:
        """Whether calls wait, but for the one that is tried after the pause."""
        return self.open_until is not None

    @property
    def status(self) -> BreakerStatus:
        """Half-open is a breaker whose one call is being tried."""
        if not self.is_open:
            return "closed"
        return "half_open" if self.is_trying else "open"

    def allows(self, now: float) -> bool:
        return self.open_until is None or (now >= self.open_until and not self.is_trying)

    def begin(self) -> bool:
        """Begin a call that the breaker allows. Returns whether its outcome decides."""
        self.is_trying = self.is_open
        return self.is_trying

    def end(self, failed: bool | None, *, decides: bool, now: float) -> None:
        """Note the outcome of a call; None is no outcome. `decides` is what `begin` returned."""
        if decides:
            self.is_trying = False
        if failed is None or decides != self.is_open:
            return
        self.outcomes.append(failed)
        if decides and not failed:
            self.open_until = None
        elif decides or 2 * sum(self.outcomes) >= WINDOW:
            self.open_until = now + self.pause
        if decides or self.is_open:
            self.outcomes.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleLimits:
    """The scheduler's limits.

    Calls in flight: `company` of one company, `in_all` of the process. `unfinished` calls may wait,
    large ones counted by their weight; one company may have as many of them as there is free room
    (the dynamic threshold of Choudhury and Hahne), so a company whose service hangs leaves half of
    the room that it found. While
    `unpublished` results wait for Kafka, no call starts.

    A call has at most `tries`. The wait before try n+1 is between a half and the whole of
    `first_wait` * 2 ** (n-1) seconds, but not shorter than the service's Retry-After. An open
    breaker pauses calls for `breaker_pause` seconds.
    """

    company: int = 32
    in_all: int = 512
    unfinished: int = 50_000
    unpublished: int = 4000
    tries: int = 3
    first_wait: float = 0.5
    breaker_pause: float = PAUSE_SECONDS


@dataclass(slots=True, eq=False)
class _Company:
    id: int
    breaker: Breaker
    waiting: deque[Call] = field(default_factory=deque)
    unfinished: int = 0
    in_flight: int = 0


@dataclass(kw_only=True, eq=False)
class CallScheduler:
    """Makes the submitted calls, fairly and within `limits`.

    A company may use no more slots than are free, and the last eighth of the slots is for companies
    that use none yet. So a company finds a slot even while the services of dozens of others hang.

    `run` must be running; it raises errors that are not the fault of a call. `agent` is the
    user-agent. `on_try(call, breaker)` is called after every try.
    """

    caller: ServiceCaller
    limits: ScheduleLimits
    agent: str
    on_try: Callable[[Call, Breaker], None] = lambda *_: None

    def __post_init__(self) -> None:
        self.unfinished = 0
        self._companies: dict[int, _Company] = {}
        # The companies of which a call might start, in turn.
        self._rotation: OrderedDict[int, _Company] = OrderedDict()
        self._free = self.limits.in_all
        self._unpublished = 0
        self._resumes_soon = False
        self._stopped = False
        self._error: BaseException | None = None

    def submit(self, call: Call, on_result: OnResult) -> None:
        """Schedule a call. `on_result` is called once, unless the call is forgotten before.

        If its company has too many calls, the call fails before `submit` returns.
        """
        company = self._companies.get(call.company_id)
        if company is None:
            breaker = Breaker(pause=self.limits.breaker_pause)
            company = _Company(call.company_id, breaker)
            self._companies[company.id] = company
        if company.unfinished >= self.limits.unfinished - self.unfinished:
            call.ended = True
            on_result(Failed(CallFault.OVERLOAD, "too many calls of the company wait already"))
            return
        call.on_result = on_result
        company.unfinished += call.weight
        self.unfinished += call.weight
        company.waiting.append(call)
        self._resume_soon(company)

    async def drain(self, calls: Collection[Call], deadline: float) -> None:
        """Forget the waiting calls, await the tries in flight for `deadline` seconds, and forget
        the calls that still have no result.
        """
        in_flight = [call.task for call in calls if call.task is not None]
        self.forget([call for call in calls if call.task is None])
        if in_flight:
            await asyncio.wait(in_flight, timeout=deadline)
        self.forget(calls)

    def forget(self, calls: Iterable[Call]) -> None:
        """Drop calls without a result and cancel their tries; `on_result` is not called."""
        for call in calls:
            if call.ended:
                continue
            self._leave(call)
            if call.retry is not None:
                call.retry.cancel()
            if call.task is not None:
                call.task.cancel()

    async def run(self) -> None:
        """Expire old calls until cancelled. Then none starts."""
        try:
            while self._error is None:
                await asyncio.sleep(_SWEEP_SECONDS)
                self._sweep()
            raise self._error
        finally:
            self._stopped = True

    def note_unpublished(self, count: int) -> None:
        """Count results that wait to be published, or, below 0, those that wait no longer."""
        self._unpublished += count
        if count < 0:
            self._resume()

    def breaker_counts(self) -> Counter[BreakerStatus]:
        """The companies that were called, by the state of their breaker."""
        return Counter(company.breaker.status for company in self._companies.values())

    def _resume(self) -> None:
        """Start the calls that may start now, one of each company in turn."""
        self._resumes_soon = False
        if self._stopped or self._unpublished >= self.limits.unpublished:
            return
        now, crowding, reserved = time.time(), 0, self.limits.in_all // 8
        while self._free and crowding < len(self._rotation):
            _, company = self._rotation.popitem(last=False)
            in_flight = company.in_flight
            if in_flight and in_flight >= self._free - reserved:
                self._rotation[company.id] = company
                crowding += 1
            elif in_flight < self.limits.company and company.breaker.allows(now):
                self._start_next(company)
                self._enter(company)
                crowding = 0

    def _resume_soon(self, company: _Company) -> None:
        """Start calls once what happens in this pass of the event loop is known."""
        self._enter(company)
        if not self._resumes_soon:
            self._resumes_soon = True
            asyncio.get_running_loop().call_soon(self._resume)

    def _enter(self, company: _Company) -> None:
        if company.waiting:
            self._rotation.setdefault(company.id, company)

    def _start_next(self, company: _Company) -> None:
        """Start the first waiting call that was not forgotten."""
        waiting = company.waiting
        while waiting and waiting[0].ended:
            waiting.popleft()
        if not waiting:
            return
        call = waiting.popleft()
        self._free -= 1
        company.in_flight += 1
        call.task = asyncio.create_task(self._try(company, call))
        decides = company.breaker.begin()
        # A callback frees the slot, because a task that is cancelled before its first step runs
        # nothing, not even its `finally`.
        call.task.add_done_callback(partial(self._free_slot, company, call, decides))

    def _free_slot(
        self, company: _Company, call: Call, decides: bool, task: asyncio.Task[bool | None]
    ) -> None:
        """Free the slot of a task that has ended. An error of the task itself ends `run`."""
        self._free += 1
        company.in_flight -= 1
        call.task = None
        error = None if task.cancelled() else task.exception()
        self._error = self._error or error
        failed = None if task.cancelled() or error else task.result()
        was_open = company.breaker.is_open
        company.breaker.end(failed, decides=decides, now=time.time())
        if company.breaker.is_open != was_open:
            log.info("breaker", company=company.id, state="closed" if was_open else "open")
        self._resume_soon(company)

    async def _try(self, company: _Company, call: Call) -> bool | None:
        """Make one try; then end the call or schedule its retry.

        Returns the outcome for the breaker: whether the try failed, or None for not counted.
        """
        if call.fresh_until <= time.time():
            self._expire(company, call)
            return None
        begin = time.perf_counter()
        call.tried += 1
        result: CallResult
        try:
            result = await call_service(self.caller, call, self.agent)
        except Failed as error:
            result = error.with_traceback(None)  # which refers to this frame
        call.seconds = time.perf_counter() - begin
        self.on_try(call, company.breaker)
        if not isinstance(result, Failed):
            self._end(call, result)
            return False
        self._retry_or_fail(company, call, result)
        return None if result.fault is CallFault.FORBIDDEN else result.counts

    def _retry_or_fail(self, company: _Company, call: Call, error: Failed) -> None:
        """Schedule a retry, which holds no slot while it waits, or end the call."""
        tries = "1 try" if call.tried == 1 else f"{call.tried} tries"
        call.failure = Failed(error.fault, f"{error.detail}; {tries}")
        wait = self.limits.first_wait * 2.0 ** (call.tried - 1)
        wait *= random.uniform(0.5, 1.0)  # noqa: S311  # spreads tries, guards nothing
        wait = max(wait, error.retry_after or 0.0)
        is_last = not error.retriable or call.tried >= self.limits.tries
        if is_last or time.time() + wait >= call.fresh_until:
            self._end(call, call.failure)
        elif not call.ended:
            loop = asyncio.get_running_loop()
            call.retry = loop.call_later(wait, self._queue_again, company, call)

    def _queue_again(self, company: _Company, call: Call) -> None:
        call.retry = None
        company.waiting.appendleft(call)
        self._resume_soon(company)

    def _expire(self, company: _Company, call: Call) -> None:
        untried = Failed(CallFault.STALE, "the detection was too old when the call's turn came")
        if company.breaker.is_open:
            detail = "the company's service kept failing until the detection was too old"
            untried = Failed(CallFault.BREAKER, detail)
        self._end(call, call.failure or untried)

    def _end(self, call: Call, result: CallResult) -> None:
        if not call.ended:
            on_result = call.on_result
            self._leave(call)
            on_result(result)

    def _leave(self, call: Call) -> None:
        del call.on_result  # a reference cycle, which would be freed by the collector only
        call.ended = True
        self.unfinished -= call.weight
        self._companies[call.company_id].unfinished -= call.weight

    def _sweep(self) -> None:
        """Expire old calls, and let calls past breakers after the pause."""
        now = time.time()
        for company in self._companies.values():
            if stale := [each for each in company.waiting if each.fresh_until <= now]:
                for call in stale:
                    self._expire(company, call)
                company.waiting = deque(each for each in company.waiting if not each.ended)
            self._enter(company)
        self._resume()
