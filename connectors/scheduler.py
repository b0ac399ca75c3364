"""Schedules calls through this package: queue, breaker, request, reply, retries, result.

Each process has one scheduler for the calls of all companies.
"""

import asyncio
import random
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from typing import Any

from connectors.breaker_client import BreakerClient
from connectors.call import Reply, ServiceCaller, call_service
from connectors.dispatcher import CallDispatcher
from connectors.errors import CallError
from connectors.fair_queue import AdmissionControl, FairQueue
from connectors.model import Call, CallFault, CallResult, Failed
from connectors.request import Request
from connectors.scheduled_call import OnResult, RetryPolicy, ScheduledCall

_SWEEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    """Most calls in flight (`company`: of one company, `in_all`), and most unfinished calls."""

    company: int = 32
    in_all: int = 512
    unfinished: int = 50_000


class CallScheduler:
    """Makes the submitted calls, fairly and within `limits`.

    `run` must be running; it raises errors that are not the fault of a call. `agent` is the
    user-agent. `on_try(call, seconds)` is called after every try, `on_retry` before every retry.
    Calls start only while `may_start()` is true; call `resume` when it becomes true.
    """

    def __init__(
        self,
        *,
        caller: ServiceCaller,
        breakers: BreakerClient,
        retries: RetryPolicy,
        limits: SchedulerLimits,
        agent: str,
        clock: Callable[[], float] = time.time,
        on_try: Callable[[Call, float], None] = lambda _call, _seconds: None,
        on_retry: Callable[[], None] = lambda: None,
        can_start: Callable[[], bool] = lambda: True,
    ) -> None:
        self._caller = caller
        self._breakers = breakers
        self._retries = retries
        self._agent = agent
        self._clock = clock
        self._on_try = on_try
        self._on_retry = on_retry
        self._random = random.Random()  # noqa: S311  # spreads tries, guards nothing
        self._dispatcher = CallDispatcher(
            queue=FairQueue(in_all=limits.in_all, per_company=limits.company),
            breakers=breakers,
            start=self._start,
            can_start=can_start,
        )
        self.resume = self._dispatcher.dispatch
        self._admission = AdmissionControl(limits.unfinished)
        self._in_flight: set[asyncio.Task[bool | None]] = set()
        self._broken = asyncio.Event()
        self._error: BaseException | None = None

    @property
    def unfinished(self) -> int:
        """Calls submitted that have not ended."""
        return self._admission.total

    def submit(self, call: Call, on_result: OnResult) -> ScheduledCall:
        """Schedule a call. `on_result` is called once, unless the call is forgotten before.

        If its company has too many calls, the call fails before `submit` returns. So a service
        that hangs takes no room from other companies.
        """
        scheduled = ScheduledCall(call, on_result)
        if self._admission.admit(call.company_id):
            self._dispatcher.add(scheduled)
        else:
            scheduled.ended = True
            waiting = self._admission.of(call.company_id)
            on_result(Failed(CallFault.OVERLOAD, f"{waiting} calls of the company wait already"))
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
            call.ended = True
            self._admission.leave(call.company_id)
            if call.retry is not None:
                call.retry.cancel()
            if call.task is not None:
                call.task.cancel()
        self._dispatcher.discard(lambda call: call.ended)

    async def run(self) -> None:
        """Exchange breakers' states and expire old calls until cancelled.

        Then no more calls start, and tries in flight are cancelled.
        """
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(work)
            for work in (self._breakers.run(), self._sweep(), self._raise_error())
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._dispatcher.stop()
            tasks += self._in_flight
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _raise_error(self) -> None:
        await self._broken.wait()
        if self._error is not None:
            raise self._error

    def _start(self, call: ScheduledCall, is_probe: bool) -> None:
        call.task = asyncio.create_task(self._try(call))
        self._in_flight.add(call.task)
        call.task.add_done_callback(partial(self._free_slot, call, is_probe))

    def _free_slot(
        self, call: ScheduledCall, is_probe: bool, task: asyncio.Task[bool | None]
    ) -> None:
        """Free the slot of a task that has ended. An error of the task itself ends `run`.

        A callback does this, because a task that is cancelled before its first step runs nothing,
        not even its `finally`.
        """
        self._in_flight.discard(task)
        call.task = None
        error = None if task.cancelled() else task.exception()
        failed = None if task.cancelled() or error is not None else task.result()
        self._dispatcher.finish(call.company_id, is_probe=is_probe, failed=failed)
        if error is not None:
            self._error = self._error or error
            self._broken.set()

    async def _try(self, call: ScheduledCall) -> bool | None:
        """Make one try; then end the call or schedule its retry.

        Returns the outcome for the breaker: whether the try failed, or None for not counted.
        """
        if call.is_stale(self._clock()):
            self._expire(call)
            return None

        def on_reply(_request: Request, reply: Reply) -> None:
            call.status = reply.status

        begin = time.perf_counter()
        call.tried += 1
        call.status = None
        try:
            result = await call_service(
                self._caller, call.call, agent=self._agent, clock=self._clock, on_reply=on_reply
            )
        except CallError as error:
            self._observe_time(call, begin)
            self._retry_or_fail(call, error)
            return None if error.fault is CallFault.FORBIDDEN else error.counts
        self._observe_time(call, begin)
        self._end(call, result)
        return False

    def _observe_time(self, call: ScheduledCall, begin: float) -> None:
        call.seconds = time.perf_counter() - begin
        self._on_try(call.call, call.seconds)

    def _retry_or_fail(self, call: ScheduledCall, error: CallError) -> None:
        """Schedule a retry, which holds no slot while it waits, or end the call."""
        if call.ended:
            return
        call.failure = Failed(error.fault, error.detail)
        now = self._clock()
        at = self._retries.next_try(
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
        self._dispatcher.add(call, first=True)

    def _expire(self, call: ScheduledCall) -> None:
        is_open = self._breakers.is_open(call.company_id)
        self._end(call, call.failed(CallFault.BREAKER if is_open else CallFault.STALE))

    def _end(self, call: ScheduledCall, result: CallResult) -> None:
        if not call.ended:
            call.ended = True
            self._admission.leave(call.company_id)
            call.on_result(result)

    async def _sweep(self) -> None:
        """Expire calls that became stale in the queue, and close connections that expired."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = self._clock()
            for call in self._dispatcher.discard(methodcaller("is_stale", now)):
                self._expire(call)
            self._breakers.forget_old()
            await self._caller.close_expired()
