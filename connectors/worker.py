"""The way of a call: its turn, the breaker, the request, the reply, another try, the result.

One worker a process, for the calls of all companies. It knows nothing of Kafka: calls come in
through `submit`, each comes out as one result, in whatever order customers' services answer.
"""

import asyncio
import random
import time
import traceback
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from connectors.call import Caller
from connectors.errors import CallError
from connectors.gate import Gate
from connectors.jobs import Intake, Job, OnResult, WorkerLimits
from connectors.model import Call, CallFault, Content, Declined, Failed, Result
from connectors.queues import FairQueue
from connectors.reply import read_reply
from connectors.request import build_request
from connectors.retry import RetryPolicy
from connectors.turns import Turns

log = structlog.get_logger(__name__)

_SWEEP_SECONDS = 1.0


class Worker:
    """Makes the calls that are submitted, fairly and within `limits`.

    `run` must run; it raises what no call is answerable for. `agent` is the user-agent.
    `on_try(seconds)` is called behind every try, `on_retry` when there will be another. No call
    begins while `may_start` says no; say `go_on` when there is room for results again.
    """

    def __init__(
        self,
        *,
        caller: Caller,
        gate: Gate,
        retries: RetryPolicy,
        limits: WorkerLimits,
        agent: str,
        clock: Callable[[], float] = time.time,
        on_try: Callable[[float], None] = lambda _seconds: None,
        on_retry: Callable[[], None] = lambda: None,
        may_start: Callable[[], bool] = lambda: True,
    ) -> None:
        self._caller = caller
        self._gate = gate
        self._retries = retries
        self._agent = agent
        self._clock = clock
        self._on_try = on_try
        self._on_retry = on_retry
        self._chance = random.Random()  # noqa: S311  # spreads tries, guards nothing
        queue: FairQueue[Job] = FairQueue(in_all=limits.in_all, per_company=limits.company)
        self._turns = Turns(queue=queue, gate=gate, start=self._start, may_start=may_start)
        self._intake = Intake(limits.unfinished)
        self._in_flight: set[asyncio.Task[bool | None]] = set()
        self._broken = asyncio.Event()
        self._error: BaseException | None = None

    @property
    def unfinished(self) -> int:
        """Calls taken in that have no result yet."""
        return self._intake.total

    def submit(self, call: Call, on_result: OnResult) -> Job:
        """Take a call in. `on_result` is called once, unless the job is withdrawn before.

        A company that has no room fails at once, within this call: a service that hangs takes no
        room from others.
        """
        job = Job(call, on_result)
        if self._intake.admit(call.company_id):
            self._turns.add(job)
        else:
            job.ended = True
            waiting = self._intake.of(call.company_id)
            on_result(Failed(CallFault.OVERLOAD, f"{waiting} calls of the company wait already"))
        return job

    def go_on(self) -> None:
        """Begin what waited for room."""
        self._turns.go_on()

    async def drain(self, jobs: Collection[Job], deadline: float) -> None:
        """Forget those that wait, let those in flight finish their try within `deadline` seconds,
        and forget what is left. What is forgotten has no result."""
        in_flight = [job.task for job in jobs if job.task is not None]
        self.forget([job for job in jobs if job.task is None])
        if in_flight:
            await asyncio.wait(in_flight, timeout=deadline)
        self.forget(jobs)

    def forget(self, jobs: Iterable[Job]) -> None:
        """Drop jobs that have no result yet, breaking off what is in flight. None will come."""
        for job in jobs:
            if job.ended:
                continue
            job.ended = True
            self._intake.leave(job.call.company_id)
            if job.retry is not None:
                job.retry.cancel()
            if job.task is not None:
                job.task.cancel()
        self._turns.discard(lambda job: job.ended)

    async def run(self) -> None:
        """Keep in step with other workers and see to what has waited too long, until cancelled;
        then break off what is in flight. Calls begin no more."""
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(work)
            for work in (self._gate.run(), self._sweep(), self._broken.wait())
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if self._error is not None:
                raise self._error
        finally:
            self._turns.stop()
            tasks += self._in_flight
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, job: Job, is_probe: bool) -> None:
        job.task = asyncio.create_task(self._try(job))
        self._in_flight.add(job.task)
        job.task.add_done_callback(partial(self._tried, job, is_probe))

    def _tried(self, job: Job, is_probe: bool, task: asyncio.Task[bool | None]) -> None:
        """Give the slot back, however the task has ended: one that is cancelled before its first
        step never runs, not even its `finally`. An error of the engine's own ends `run`."""
        self._in_flight.discard(task)
        job.task = None
        error = None if task.cancelled() else task.exception()
        failed = None if task.cancelled() or error is not None else task.result()
        self._turns.finished(job.call.company_id, is_probe=is_probe, failed=failed)
        if error is not None:
            self._error = self._error or error
            self._broken.set()

    async def _try(self, job: Job) -> bool | None:
        """One try, and what follows from it. For the breaker: did it fail? None: it was none."""
        if job.call.fresh_until <= self._clock():
            self._expire(job)
            return None
        begin = time.perf_counter()
        job.tried += 1
        job.status = None
        try:
            result = await self._ask_service(job)
        except CallError as error:
            self._note_time(job, begin)
            self._after_failure(job, error)
            return None if error.fault is CallFault.FORBIDDEN else error.counts
        self._note_time(job, begin)
        self._end(job, result)
        return False

    def _note_time(self, job: Job, begin: float) -> None:
        job.seconds = time.perf_counter() - begin
        self._on_try(job.seconds)

    async def _ask_service(self, job: Job) -> Content | Declined:
        """One exchange. Raises CallError, whatever the service answers and the connector holds."""
        call = job.call
        try:
            request = build_request(call, agent=self._agent, now=self._clock())
        except Exception as error:
            raise _unforeseen(call, error, CallFault.REQUEST, "no valid request") from None
        try:
            reply = await self._caller.send(call.company_id, request)
            job.status = reply.status
            return read_reply(reply.status, reply.headers, reply.body, now=self._clock())
        except CallError:
            raise
        except Exception as error:
            raise _unforeseen(
                call, error, CallFault.REPLY, "an answer that cannot be used"
            ) from None

    def _after_failure(self, job: Job, error: CallError) -> None:
        """Another try later, if there is to be one; the job holds no slot meanwhile."""
        if job.ended:
            return
        job.failure = Failed(error.fault, error.detail)
        now = self._clock()
        at = self._retries.next_try(
            tried=job.tried,
            error=error,
            now=now,
            fresh_until=job.call.fresh_until,
            chance=self._chance.random(),
        )
        if at is None:
            self._end(job, job.failed(error.fault))
            return
        self._on_retry()
        job.retry = asyncio.get_running_loop().call_later(at - now, self._queue_again, job)

    def _queue_again(self, job: Job) -> None:
        job.retry = None
        self._turns.add(job, first=True)

    def _expire(self, job: Job) -> None:
        is_open = self._gate.is_open(job.call.company_id)
        self._end(job, job.failed(CallFault.BREAKER if is_open else CallFault.STALE))

    def _end(self, job: Job, result: Result) -> None:
        if not job.ended:
            job.ended = True
            self._intake.leave(job.call.company_id)
            job.on_result(result)

    async def _sweep(self) -> None:
        """See to calls that grew old while they waited, and to connections nobody uses."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now = self._clock()
            for job in self._turns.discard(partial(_is_old, now)):
                self._expire(job)
            self._gate.forget_old()
            await self._caller.close_expired()


def _unforeseen(call: Call, error: Exception, fault: CallFault, detail: str) -> CallError:
    """The failure of this one call. The log says where the error arose, without its message, which
    may quote what the service sent."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    log.error(
        "call_failed_unforeseen", company=call.company_id, error=type(error).__name__, where=where
    )
    return CallError(fault, f"{detail} ({type(error).__name__})", counts=True)


def _is_old(now: float, job: Job) -> bool:
    return job.call.fresh_until <= now
