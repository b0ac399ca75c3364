"""Makes the calls of all companies: fairly, within bounds, with retries, past breakers.

Each process has one scheduler. `FairQueue` shares its slots among companies.
"""

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from connectors.breaker import Breakers, BreakerState
from connectors.client import Reply, ServiceCaller, call_service
from connectors.errors import CallError
from connectors.model import Call, CallFault, CallResult, Content, Failed
from connectors.request import Request

OnResult = Callable[[CallResult], None]
Item = TypeVar("Item")

_SWEEP_SECONDS = 0.25  # old calls expire, and open breakers are asked about
# Calls that start in one pass of the event loop; then other tasks have their turn. At most one call
# of a company starts in a pass: a service that fails at once frees its slots in every pass, and
# would make the calls of others wait.
_STARTS_A_PASS = 16
_FAILED_UNTRIED = {
    CallFault.BREAKER: "the company's service kept failing until the detection was too old",
    CallFault.STALE: "the detection was too old when the call's turn came",
}


@dataclass(slots=True)
class _Company(Generic[Item]):
    waiting: deque[Item] = field(default_factory=deque)
    running: int = 0
    is_paused: bool = False
    in_ring: bool = False


class FairQueue(Generic[Item]):
    """Gives out at most `in_all` slots, at most `per_company` to one company, companies in turn.

    When slots run short, a company may use no more slots than are free. The last eighth of the
    slots is for companies that use none yet, so a company finds a slot even while the services of
    dozens of companies hang. The items of a paused company wait and keep their order. Pure.
    """

    def __init__(self, *, in_all: int, per_company: int) -> None:
        self.free = in_all
        self._per_company = per_company
        self._reserved = in_all // 8
        self._companies: dict[int, _Company[Item]] = {}
        self._ring: deque[int] = deque()

    def add(self, company_id: int, item: Item, *, first: bool = False) -> None:
        """Queue the item behind the company's others, or before them."""
        company = self._companies.setdefault(company_id, _Company())
        (company.waiting.appendleft if first else company.waiting.append)(item)
        self._enter(company_id, company)

    def take(self, but: Collection[int] = ()) -> tuple[int, Item] | None:
        """The next item to run, or None without an item or a free slot. Skips the companies `but`.

        `finish` frees the slot.
        """
        for _ in range(len(self._ring) if self.free else 0):
            company_id = self._ring.popleft()
            company = self._companies[company_id]
            company.in_ring = False
            if not self._is_ready(company):
                self._forget_if_idle(company_id, company)
                continue
            is_crowding = company.running and company.running >= self.free - self._reserved
            item = None if is_crowding or company_id in but else self._start(company)
            self._enter(company_id, company)
            if item is not None:
                return company_id, item
        return None

    def take_of(self, company_id: int) -> Item | None:
        """The next item of a company, paused or not; None without an item or a free slot."""
        company = self._companies.get(company_id)
        if company is None or not company.waiting or not self.free:
            return None
        return self._start(company)

    def finish(self, company_id: int) -> None:
        """An item that was taken has ended: its slot is free."""
        company = self._companies[company_id]
        company.running -= 1
        self.free += 1
        self._enter(company_id, company)
        self._forget_if_idle(company_id, company)

    def pause(self, company_id: int) -> None:
        """Take no items of the company until `resume`."""
        self._companies.setdefault(company_id, _Company()).is_paused = True

    def resume(self, company_id: int) -> None:
        """Take items of the company again."""
        company = self._companies.get(company_id)
        if company is not None:
            company.is_paused = False
            self._enter(company_id, company)
            self._forget_if_idle(company_id, company)

    def paused(self) -> dict[int, bool]:
        """The paused companies, and whether an item of each waits."""
        return {id_: bool(one.waiting) for id_, one in self._companies.items() if one.is_paused}

    def discard(self, unwanted: Callable[[Item], bool]) -> list[Item]:
        """Remove the waiting items for which `unwanted(item)` is true; the order stays."""
        removed: list[Item] = []
        for company in self._companies.values():
            remaining: deque[Item] = deque()
            for item in company.waiting:
                # `unwanted` may read a clock, so a second call could give another answer.
                (removed if unwanted(item) else remaining).append(item)
            company.waiting = remaining
        return removed

    def _is_ready(self, company: _Company[Item]) -> bool:
        has_slot = company.running < self._per_company
        return bool(company.waiting) and not company.is_paused and has_slot

    def _enter(self, company_id: int, company: _Company[Item]) -> None:
        if not company.in_ring and self._is_ready(company):
            company.in_ring = True
            self._ring.append(company_id)

    def _start(self, company: _Company[Item]) -> Item:
        company.running += 1
        self.free -= 1
        return company.waiting.popleft()

    def _forget_if_idle(self, company_id: int, company: _Company[Item]) -> None:
        if not (company.waiting or company.running or company.is_paused or company.in_ring):
            del self._companies[company_id]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The scheduler's limits.

    Calls in flight: `company` of one company, `in_all` of the process. `unfinished` calls may wait;
    one company may have as many of them as there is free room (the dynamic threshold of Choudhury
    and Hahne), so a company whose service hangs leaves half of the room that it found.

    A call has at most `tries`. The wait before try n+1 is between a half and the whole of
    `first_wait` * 2 ** (n-1) seconds, but not shorter than the service's Retry-After.
    """

    company: int = 32
    in_all: int = 512
    unfinished: int = 50_000
    tries: int = 3
    first_wait: float = 0.5

    def next_try(
        self, *, tried: int, error: CallError, now: float, fresh_until: float, chance: float
    ) -> float | None:
        """The time (epoch s) of the next try after `tried` tries, or None for no more tries.

        `chance` in [0, 1) spreads the tries. No try begins at or after `fresh_until`.
        """
        if not error.retriable or tried >= self.tries:
            return None
        wait = self.first_wait * 2.0 ** (tried - 1) * (0.5 + chance / 2)
        at = now + max(wait, error.retry_after or 0.0)
        return at if at < fresh_until else None


class TrySpan(Protocol):
    """The span of one try in a trace; `traceparent` goes with the request."""

    @property
    def traceparent(self) -> str | None: ...
    def end(self, outcome: str, status: int | None) -> None: ...


@dataclass(slots=True, eq=False)
class ScheduledCall:
    """A call without a result yet. `task` is the try in flight, `retry` the timer of the next try.

    `seconds` and `status` are those of the last try. `trace` begins the span of a try.
    """

    call: Call
    on_result: OnResult
    trace: Callable[[], TrySpan] | None = None
    tried: int = 0
    seconds: float | None = None
    status: int | None = None
    # Not the error: its traceback would keep this object and all data of the try in memory.
    failure: Failed | None = None
    task: asyncio.Task[bool | None] | None = None
    retry: asyncio.TimerHandle | None = None
    ended: bool = False

    def failed(self, untried: CallFault) -> Failed:
        """The failure of the last try, or a failure with the fault `untried` without any try."""
        if self.failure is None:
            return Failed(untried, _FAILED_UNTRIED[untried])
        tries = "1 try" if self.tried == 1 else f"{self.tried} tries"
        return Failed(self.failure.fault, f"{self.failure.detail}; {tries}")


class CallScheduler:
    """Makes the submitted calls, fairly and within `limits`.

    `run` must be running; it raises errors that are not the fault of a call. `agent` is the
    user-agent. `on_try(call, seconds)` is called after every try, `on_retry` before every retry.
    Calls start only while `can_start()` is true; call `resume` when it becomes true.
    """

    def __init__(
        self,
        *,
        caller: ServiceCaller,
        breakers: Breakers,
        limits: Limits,
        agent: str,
        clock: Callable[[], float] = time.time,
        on_try: Callable[[Call, float], None] = lambda _call, _seconds: None,
        on_retry: Callable[[], None] = lambda: None,
        can_start: Callable[[], bool] = lambda: True,
    ) -> None:
        self._caller = caller
        self._breakers = breakers
        self._limits = limits
        self._agent = agent
        self._clock = clock
        self._on_try = on_try
        self._on_retry = on_retry
        self._can_start = can_start
        self._random = random.Random()  # noqa: S311  # spreads tries, guards nothing
        self.queue: FairQueue[ScheduledCall] = FairQueue(
            in_all=limits.in_all, per_company=limits.company
        )
        self._unfinished: Counter[int] = Counter()
        self.unfinished = 0
        self._in_flight: set[asyncio.Task[bool | None]] = set()
        self._started: set[int] = set()  # companies of which a call has started in this pass
        self._stopped = False
        self._broken = asyncio.Event()
        self._error: BaseException | None = None
        breakers.on_state = self._on_state

    def submit(
        self, call: Call, on_result: OnResult, trace: Callable[[], TrySpan] | None = None
    ) -> ScheduledCall:
        """Schedule a call. `on_result` is called once, unless the call is forgotten before.

        If its company has too many calls, the call fails before `submit` returns.
        """
        scheduled = ScheduledCall(call, on_result, trace)
        waiting = self._unfinished[call.company_id]
        if waiting >= self._limits.unfinished - self.unfinished:
            scheduled.ended = True
            on_result(Failed(CallFault.OVERLOAD, f"{waiting} calls of the company wait already"))
        else:
            self._unfinished[call.company_id] += 1
            self.unfinished += 1
            self._enqueue(scheduled)
        return scheduled

    async def drain(self, calls: Collection[ScheduledCall], deadline: float) -> None:
        """Forget the waiting calls, await the tries in flight for `deadline` seconds, and forget
        the calls that still have no result.
        """
        in_flight = [call.task for call in calls if call.task is not None]
        self.forget([call for call in calls if call.task is None])
        if in_flight:
            await asyncio.wait(in_flight, timeout=deadline)
        self.forget(calls)

    def forget(self, calls: Iterable[ScheduledCall]) -> None:
        """Drop calls without a result and cancel their tries; `on_result` is not called."""
        for call in calls:
            if call.ended:
                continue
            self._leave(call)
            if call.retry is not None:
                call.retry.cancel()
            if call.task is not None:
                call.task.cancel()
        self.queue.discard(lambda call: call.ended)

    async def run(self) -> None:
        """Exchange breakers' states and expire old calls until cancelled.

        Then no more calls start, and tries in flight are cancelled.
        """
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(self._breakers.run()),
            asyncio.create_task(self._sweep()),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._stopped = True
            tasks += self._in_flight
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def resume(self) -> None:
        """Start the calls that may start now."""
        while len(self._started) < _STARTS_A_PASS and not self._stopped and self._can_start():
            if (taken := self.queue.take(self._started)) is None:
                return
            company_id, call = taken
            if not self._started:
                asyncio.get_running_loop().call_soon(self._begin_pass)
            self._started.add(company_id)
            self._start(call, is_probe=False)

    def _begin_pass(self) -> None:
        self._started.clear()
        self.resume()

    def _enqueue(self, call: ScheduledCall, *, first: bool = False) -> None:
        """Queue the call; it waits until its company's breaker is known to be closed."""
        company_id = call.call.company_id
        self.queue.add(company_id, call, first=first)
        if self._breakers.is_closed(company_id):
            self.resume()
            return
        self.queue.pause(company_id)
        self._breakers.request_state(company_id)

    def _on_state(self, company_id: int, state: BreakerState) -> None:
        if not state.is_open:
            self.queue.resume(company_id)
            self.resume()
            return
        self.queue.pause(company_id)
        if state.is_prober:
            call = None if self._stopped else self.queue.take_of(company_id)
            if call is None:
                self._breakers.report_probe(company_id, None)
            else:
                self._start(call, is_probe=True)

    def _start(self, call: ScheduledCall, *, is_probe: bool) -> None:
        call.task = asyncio.create_task(self._try(call))
        self._in_flight.add(call.task)
        # A callback frees the slot, because a task that is cancelled before its first step runs
        # nothing, not even its `finally`.
        call.task.add_done_callback(partial(self._free_slot, call, is_probe))

    def _free_slot(
        self, call: ScheduledCall, is_probe: bool, task: asyncio.Task[bool | None]
    ) -> None:
        """Free the slot of a task that has ended. An error of the task itself ends `run`."""
        self._in_flight.discard(task)
        call.task = None
        error = None if task.cancelled() else task.exception()
        failed = None if task.cancelled() or error is not None else task.result()
        company_id = call.call.company_id
        if is_probe:
            self._breakers.report_probe(company_id, failed)
        elif failed is not None:
            self._breakers.report(company_id, failed)
        self.queue.finish(company_id)
        self.resume()
        if error is not None:
            self._error = self._error or error
            self._broken.set()

    async def _try(self, call: ScheduledCall) -> bool | None:
        """Make one try; then end the call or schedule its retry.

        Returns the outcome for the breaker: whether the try failed, or None for not counted.
        """
        if self._is_stale(call):
            self._expire(call)
            return None

        def on_reply(_request: Request, reply: Reply) -> None:
            call.status = reply.status

        begin = time.perf_counter()
        call.tried += 1
        call.status = None
        span = None if call.trace is None else call.trace()
        try:
            result = await call_service(
                self._caller,
                call.call,
                agent=self._agent,
                clock=self._clock,
                on_reply=on_reply,
                traceparent=None if span is None else span.traceparent,
            )
        except CallError as error:
            self._observe(call, begin, span, error.fault.value)
            self._retry_or_fail(call, error)
            return None if error.fault is CallFault.FORBIDDEN else error.counts
        self._observe(call, begin, span, "published" if isinstance(result, Content) else "declined")
        self._end(call, result)
        return False

    def _observe(
        self, call: ScheduledCall, begin: float, span: TrySpan | None, outcome: str
    ) -> None:
        call.seconds = time.perf_counter() - begin
        self._on_try(call.call, call.seconds)
        if span is not None:
            span.end(outcome, call.status)

    def _retry_or_fail(self, call: ScheduledCall, error: CallError) -> None:
        """Schedule a retry, which holds no slot while it waits, or end the call."""
        if call.ended:
            return
        call.failure = Failed(error.fault, error.detail)
        now = self._clock()
        at = self._limits.next_try(
            tried=call.tried,
            error=error,
            now=now,
            fresh_until=call.call.fresh_until,
            chance=self._random.random(),
        )
        if at is None:
            self._end(call, call.failed(error.fault))
            return
        self._on_retry()
        call.retry = asyncio.get_running_loop().call_later(at - now, self._queue_again, call)

    def _queue_again(self, call: ScheduledCall) -> None:
        call.retry = None
        self._enqueue(call, first=True)

    def _is_stale(self, call: ScheduledCall) -> bool:
        return call.call.fresh_until <= self._clock()

    def _expire(self, call: ScheduledCall) -> None:
        is_open = self._breakers.is_open(call.call.company_id)
        self._end(call, call.failed(CallFault.BREAKER if is_open else CallFault.STALE))

    def _end(self, call: ScheduledCall, result: CallResult) -> None:
        if not call.ended:
            self._leave(call)
            call.on_result(result)

    def _leave(self, call: ScheduledCall) -> None:
        call.ended = True
        company_id = call.call.company_id
        self.unfinished -= 1
        self._unfinished[company_id] -= 1
        if not self._unfinished[company_id]:
            del self._unfinished[company_id]

    async def _sweep(self) -> None:
        """Expire stale calls, and ask about open breakers. Raises the error of a try."""
        while self._error is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_SECONDS):
                    await self._broken.wait()
            for call in self.queue.discard(self._is_stale):
                self._expire(call)
            for company_id, is_waiting in self.queue.paused().items():
                if is_waiting:
                    self._breakers.request_state(company_id)
                else:
                    self.queue.resume(company_id)
            self._breakers.forget_old()
        raise self._error
