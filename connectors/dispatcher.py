"""Starts a call when its company has its turn and the company's breaker is closed."""

import asyncio
from collections.abc import Callable

from connectors.breaker import BreakerState
from connectors.breaker_client import BreakerClient
from connectors.fair_queue import FairQueue
from connectors.scheduled_call import ScheduledCall

_LONGEST_POLL_SECONDS = 1.0  # an open breaker: another process may have closed it
_SHORTEST_POLL_SECONDS = 0.01
# Calls that start in one pass of the event loop; then other tasks have their turn. In the long run
# a pass handles as many calls as start in it. At most one call of a company starts in a pass: a
# service that fails at once frees its slots in every pass, and would make the calls of others wait.
_STARTS_A_PASS = 16


class CallDispatcher:
    """Queues calls and starts them with `start(call, is_probe)`; `finish` frees the slot again.

    A company's calls wait until its breaker is known to be closed. If this process is the prober of
    an open breaker, one call starts as the probe. Other calls start only while `may_start()` is
    true; call `dispatch` when it becomes true.
    """

    def __init__(
        self,
        *,
        queue: FairQueue[ScheduledCall],
        breakers: BreakerClient,
        start: Callable[[ScheduledCall, bool], None],
        can_start: Callable[[], bool],
    ) -> None:
        self._queue = queue
        self._can_start = can_start
        self._breakers = breakers
        self._start = start
        self._stopped = False
        self._started: set[int] = set()  # companies of which a call has started in this pass
        # Companies whose breaker's state is requested, will be requested by a timer, or is probed.
        self._awaiting_state: dict[int, asyncio.TimerHandle | None] = {}
        breakers.on_state = self._on_state

    def add(self, call: ScheduledCall, *, first: bool = False) -> None:
        """Queue the call behind its company's others, or `first`."""
        company_id = call.company_id
        (self._queue.add_first if first else self._queue.add)(company_id, call)
        if self._breakers.is_closed(company_id):
            self.dispatch()
            return
        self._queue.pause(company_id)
        if company_id not in self._awaiting_state:
            self._awaiting_state[company_id] = None
            self._breakers.request_state(company_id)

    def finish(self, company_id: int, *, is_probe: bool, failed: bool | None) -> None:
        """A try has ended. `failed` is the outcome for the breaker; None is not counted."""
        if is_probe:
            self._breakers.report_probe(company_id, failed)
        elif failed is not None:
            self._breakers.report(company_id, failed)
        self._queue.finish(company_id)
        self.dispatch()

    def discard(self, unwanted: Callable[[ScheduledCall], bool]) -> list[ScheduledCall]:
        """Remove the queued calls for which `unwanted(call)` is true."""
        return self._queue.discard(unwanted)

    def stop(self) -> None:
        """Start no more calls."""
        self._stopped = True

    def dispatch(self) -> None:
        """Start the calls that may start now."""
        while len(self._started) < _STARTS_A_PASS and not self._stopped and self._can_start():
            if (taken := self._queue.take(self._started)) is None:
                return
            company_id, call = taken
            if not self._started:
                asyncio.get_running_loop().call_soon(self._begin_pass)
            self._started.add(company_id)
            self._start(call, False)

    def _begin_pass(self) -> None:
        self._started.clear()
        self.dispatch()

    def _on_state(self, company_id: int, state: BreakerState) -> None:
        timer = self._awaiting_state.pop(company_id, None)
        if timer is not None:
            timer.cancel()
        if not state.is_open:
            self._queue.resume(company_id)
            self.dispatch()
            return
        self._queue.pause(company_id)
        if state.is_prober:
            self._probe(company_id)
        else:
            self._request_later(company_id, min(state.wait, _LONGEST_POLL_SECONDS))

    def _request_later(self, company_id: int, seconds: float) -> None:
        def request() -> None:
            self._awaiting_state[company_id] = None
            if self._queue.has_waiting(company_id):
                self._breakers.request_state(company_id)
            else:
                del self._awaiting_state[company_id]

        loop = asyncio.get_running_loop()
        self._awaiting_state[company_id] = loop.call_later(
            max(seconds, _SHORTEST_POLL_SECONDS), request
        )

    def _probe(self, company_id: int) -> None:
        # The state is requested again when the outcome of the probe has been reported.
        self._awaiting_state[company_id] = None
        call = None if self._stopped else self._queue.take_of(company_id)
        if call is None:
            self._breakers.report_probe(company_id, None)
        else:
            self._start(call, True)
