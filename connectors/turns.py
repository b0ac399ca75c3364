"""Who may call next: the queue of each company, and its breaker in front of it."""

import asyncio
from collections.abc import Callable

from connectors.breaker import Standing, Wish
from connectors.gate import Gate
from connectors.jobs import Job
from connectors.queues import FairQueue

_ASK_AGAIN_SECONDS = 1.0  # an open breaker: another process may have closed it
_ASK_SOONEST_SECONDS = 0.01
# Calls begun in one pass of the event loop; then whatever is ready has its next step. In the long
# run a pass goes through as many calls as begin in it. So of each company it is one: a service that
# answers at once, and wrongly, has slots free in each pass, and others' calls wait for each pass.
_STARTS_A_PASS = 16


class Turns:
    """Starts jobs when their turn comes and their company's breaker lets them.

    `start(job, is_probe)` begins one; say `finished` when its try has ended. A company whose
    breaker is not known to be closed is held until it has been asked for; of an open one, one job
    is started as a probe when the gate says so. While `may_start` says no, nothing else begins:
    say `go_on` when it would say yes.
    """

    def __init__(
        self,
        *,
        queue: FairQueue[Job],
        gate: Gate,
        start: Callable[[Job, bool], None],
        may_start: Callable[[], bool],
    ) -> None:
        self._queue = queue
        self._may_start = may_start
        self._gate = gate
        self._start = start
        self._stopped = False
        self._begun: set[int] = set()  # companies of which a call has begun in this pass
        # Companies that are being asked for, or will be by a timer, or whose probe is out.
        self._asking: dict[int, asyncio.TimerHandle | None] = {}
        gate.on_standing = self._on_standing

    def add(self, job: Job, *, first: bool = False) -> None:
        """Let the job wait for its turn: behind its company's others, or `first`."""
        company_id = job.call.company_id
        put = self._queue.add_first if first else self._queue.add
        put(company_id, job)
        if self._gate.is_closed(company_id):
            self._dispatch()
            return
        self._queue.hold(company_id)
        if company_id not in self._asking:
            self._asking[company_id] = None
            self._gate.ask(company_id)

    def finished(self, company_id: int, *, is_probe: bool, failed: bool | None) -> None:
        """A try has ended. `failed` is for the breaker; None: there was no try after all."""
        if is_probe:
            told = Wish.LEAVE if failed is None else Wish.FAILED if failed else Wish.PASSED
            self._gate.probed(company_id, told)
        elif failed is not None:
            self._gate.note(company_id, failed)
        self._queue.finished(company_id)
        self._dispatch()

    def discard(self, unwanted: Callable[[Job], bool]) -> list[Job]:
        """Take out jobs that wait and are `unwanted`."""
        return self._queue.discard(unwanted)

    def go_on(self) -> None:
        """Start what may start now."""
        self._dispatch()

    def stop(self) -> None:
        """Start nothing more."""
        self._stopped = True

    def _dispatch(self) -> None:
        while len(self._begun) < _STARTS_A_PASS and not self._stopped and self._may_start():
            if (taken := self._queue.take(self._begun)) is None:
                return
            company_id, job = taken
            if not self._begun:
                asyncio.get_running_loop().call_soon(self._begin_pass)
            self._begun.add(company_id)
            self._start(job, False)

    def _begin_pass(self) -> None:
        self._begun.clear()
        self._dispatch()

    def _on_standing(self, company_id: int, standing: Standing) -> None:
        timer = self._asking.pop(company_id, None)
        if timer is not None:
            timer.cancel()
        if not standing.is_open:
            self._queue.release(company_id)
            self._dispatch()
            return
        self._queue.hold(company_id)
        if standing.is_prober:
            self._probe(company_id)
        else:
            self._ask_later(company_id, min(standing.wait, _ASK_AGAIN_SECONDS))

    def _ask_later(self, company_id: int, seconds: float) -> None:
        def ask() -> None:
            self._asking[company_id] = None
            if self._queue.has_waiting(company_id):
                self._gate.ask(company_id)
            else:
                del self._asking[company_id]

        loop = asyncio.get_running_loop()
        self._asking[company_id] = loop.call_later(max(seconds, _ASK_SOONEST_SECONDS), ask)

    def _probe(self, company_id: int) -> None:
        # Until the outcome of this call is told nothing more is asked.
        self._asking[company_id] = None
        job = None if self._stopped else self._queue.take_of(company_id)
        if job is None:
            self._gate.probed(company_id, Wish.LEAVE)
        else:
            self._start(job, True)
