"""The breakers of companies' services: closed, open, half-open.

A closed breaker remembers the outcomes of the last calls. When enough of them are failures, the
breaker opens and no process calls the service for `pause` seconds. Then the breaker is half-open:
one process, the prober, makes one call. The outcome of that call closes the breaker or opens it
again. If the prober does not report within `lease` seconds, another process may become the prober.

All processes share the breakers in Redis, where engine/connector/scripts/breaker.lua has the rules.
While Redis is down, each process has breakers of its own.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import structlog

log = structlog.get_logger(__name__)

FORGET_SECONDS = 600.0
_GATHER_SECONDS = 0.05  # outcomes are gathered for so long before they are reported
_FRESH_SECONDS = 1.0  # an older state is requested again before the next call
_STORE_PAUSE = 1.0  # a store that failed gets no requests for so long


class ReportPurpose(StrEnum):
    """Why a process reports. The values are those of the Lua script."""

    OUTCOMES = "tell"  # to add outcomes, and to get the state
    REQUEST_PROBE = "ask"  # to become the prober, if the breaker is half-open
    PROBE_PASSED = "passed"
    PROBE_FAILED = "failed"
    PROBE_DROPPED = "leave"  # the prober has made no call after all


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """A breaker opens at `failures` among the last `window` calls. `pause`, `lease` in seconds."""

    window: int = 20
    failures: int = 10
    pause: float = 10.0
    lease: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerReport:
    """One company's outcomes in one process since its last report; True is a failure."""

    company_id: int
    outcomes: tuple[bool, ...] = ()
    purpose: ReportPurpose = ReportPurpose.OUTCOMES


@dataclass(frozen=True, slots=True)
class BreakerState:
    """Whether a breaker is open; `wait` (s) is then the time until the next request."""

    is_open: bool = False
    is_prober: bool = False
    wait: float = 0.0


CLOSED = BreakerState()


class BreakerStore(Protocol):
    """Stores breakers. `prober` names the process that reports; `now` is epoch seconds.

    Returns one state for each report, in order. Raises the errors of the server that stores them.
    """

    async def exchange(
        self, reports: Sequence[BreakerReport], *, prober: str, now: float
    ) -> list[BreakerState]: ...


class _Breaker:
    """One company's breaker as this process knows it, and what it has not reported yet."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self.state = CLOSED
        self.received_at = float("-inf")
        self.outcomes: list[bool] = []
        self.purpose: ReportPurpose | None = None
        self._policy = policy
        self._window: deque[bool] = deque(maxlen=policy.window)
        self._open_until: float | None = None

    def take_report(self, company_id: int) -> BreakerReport:
        outcomes, purpose = tuple(self.outcomes), self.purpose or ReportPurpose.OUTCOMES
        self.outcomes, self.purpose = [], None
        return BreakerReport(company_id=company_id, outcomes=outcomes, purpose=purpose)

    def apply(self, report: BreakerReport, now: float) -> BreakerState:
        """The state by this process's calls alone."""
        if self._open_until is None:
            self._window.extend(report.outcomes)
            if sum(self._window) >= self._policy.failures:
                self._open_until = now + self._policy.pause
                self._window.clear()
        elif report.purpose is ReportPurpose.PROBE_PASSED:
            self._open_until = None
        elif report.purpose is ReportPurpose.PROBE_FAILED:
            self._open_until = now + self._policy.pause
        if self._open_until is None:
            return CLOSED
        is_prober = report.purpose is ReportPurpose.REQUEST_PROBE and now >= self._open_until
        return BreakerState(True, is_prober, max(0.0, self._open_until - now))


class Breakers:
    """Knows which companies may be called. `run` must be running. `name` is unique to the process.

    One exchange with the store reports outcomes and receives states for many companies, so a call
    costs no round trip of its own. `on_state(company_id, state)` is called for each state that was
    requested or has changed; `is_temporary(error)` says whether an error of the store will pass,
    and `on_store_error` is called for each that will. `clock` gives epoch seconds.
    """

    def __init__(
        self,
        *,
        store: BreakerStore,
        policy: BreakerPolicy,
        name: str,
        clock: Callable[[], float],
        is_temporary: Callable[[Exception], bool],
        on_store_error: Callable[[], None],
    ) -> None:
        self._store = store
        self._policy = policy
        self._name = name
        self._clock = clock
        self._is_temporary = is_temporary
        self._on_store_error = on_store_error
        self._known: dict[int, _Breaker] = {}
        self._to_report: dict[int, _Breaker] = {}
        self._requested = asyncio.Event()
        self._gathering: asyncio.TimerHandle | None = None
        self._store_down_until = float("-inf")
        self.on_state: Callable[[int, BreakerState], None] = lambda _company, _state: None

    def is_closed(self, company_id: int) -> bool:
        """Whether a fresh state permits calls to the company. If not, call `request_state`."""
        known = self._known.get(company_id)
        if known is None or known.state.is_open:
            return False
        return self._clock() < known.received_at + _FRESH_SECONDS

    def is_open(self, company_id: int) -> bool:
        """Whether the last known state is open."""
        known = self._known.get(company_id)
        return known is not None and known.state.is_open

    def request_state(self, company_id: int) -> None:
        """Request the state, and to be the prober of a half-open breaker; `on_state` answers.

        Does nothing while this process makes the probe: its outcome brings the next state.
        """
        known = self._known.get(company_id)
        if known is not None and known.state.is_prober:
            return
        known = self._reporting(company_id)
        known.purpose = known.purpose or ReportPurpose.REQUEST_PROBE
        self._requested.set()

    def report(self, company_id: int, failed: bool) -> None:
        """Add the outcome of a call to the next report."""
        self._reporting(company_id).outcomes.append(failed)
        if self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.call_later(_GATHER_SECONDS, self._requested.set)

    def report_probe(self, company_id: int, failed: bool | None) -> None:
        """Report the outcome of the probe; None if the probe was dropped before its call."""
        known = self._reporting(company_id)
        if failed is None:
            known.purpose = ReportPurpose.PROBE_DROPPED
        else:
            known.purpose = ReportPurpose.PROBE_FAILED if failed else ReportPurpose.PROBE_PASSED
        self._requested.set()

    def counts(self) -> dict[str, int]:
        """How many breakers this process knows in each state."""
        counts = {"closed": 0, "open": 0, "half_open": 0}
        for known in self._known.values():
            state = "open" if known.state.is_open else "closed"
            counts["half_open" if known.state.is_prober else state] += 1
        return counts

    async def run(self) -> None:
        """Exchange reports for states until cancelled. Raises the store's permanent errors."""
        while True:
            await self._requested.wait()
            self._requested.clear()
            if self._gathering is not None:
                self._gathering.cancel()
                self._gathering = None
            await self._exchange()

    def forget_old(self) -> None:
        """Drop breakers of which nothing was heard for ten minutes."""
        oldest = self._clock() - FORGET_SECONDS
        for company_id, known in list(self._known.items()):
            if known.received_at <= oldest and company_id not in self._to_report:
                del self._known[company_id]

    def _reporting(self, company_id: int) -> _Breaker:
        known = self._known.get(company_id)
        if known is None:
            known = self._known[company_id] = _Breaker(self._policy)
        self._to_report[company_id] = known
        return known

    async def _exchange(self) -> None:
        to_report, self._to_report = self._to_report, {}
        now = self._clock()
        reports = [known.take_report(company_id) for company_id, known in to_report.items()]
        # Always, so that the process's own breakers are up to date when the store fails.
        own = [to_report[report.company_id].apply(report, now) for report in reports]
        states = await self._shared(reports, now) if reports else None
        for report, state in zip(reports, states or own, strict=True):
            self._receive(to_report[report.company_id], report, state)

    async def _shared(self, reports: list[BreakerReport], now: float) -> list[BreakerState] | None:
        if now < self._store_down_until:
            return None
        try:
            return await self._store.exchange(reports, prober=self._name, now=now)
        except Exception as error:  # sorted: without the store for a while, or up and stop
            if not self._is_temporary(error):
                raise
            log.warning("breakers are this process's own for now", error=type(error).__name__)
            self._on_store_error()
            self._store_down_until = now + _STORE_PAUSE
            return None

    def _receive(self, known: _Breaker, report: BreakerReport, state: BreakerState) -> None:
        has_changed = known.state.is_open != state.is_open
        if has_changed:
            word = "open" if state.is_open else "closed"
            log.info("breaker", company=report.company_id, state=word)
        known.state = state
        known.received_at = self._clock()
        if has_changed or report.purpose is not ReportPurpose.OUTCOMES:
            self.on_state(report.company_id, state)
