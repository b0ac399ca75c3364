"""Caches the breakers' states in this process and reports the outcomes of its calls.

One exchange with the shared store reports outcomes and receives states for many companies, so a
call costs no round trip of its own. While the store is down, the process uses its own breakers.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from connectors.breaker import (
    CLOSED,
    BreakerReport,
    BreakerState,
    BreakerStore,
    LocalBreakers,
    ReportPurpose,
)

log = structlog.get_logger(__name__)

_GATHER_SECONDS = 0.05  # outcomes are gathered for so long before they are reported
_FRESH_SECONDS = 1.0  # an older state is requested again before the next call
_FORGET_SECONDS = 60.0
_STORE_PAUSE = 1.0  # a store that failed gets no requests for so long


@dataclass(slots=True)
class _CachedBreaker:
    state: BreakerState = CLOSED
    received_at: float = float("-inf")
    outcomes: list[bool] = field(default_factory=list)
    purpose: ReportPurpose | None = None
    is_probing: bool = False


class BreakerClient:
    """Knows which companies may be called. `run` must be running. `name` is unique to the process.

    `on_state(company_id, state)` is called for each state that was requested or has changed, and
    `on_store_error` for each temporary failure of the store: `may_pass(error)` says whether it is
    one. `clock` gives epoch seconds.
    """

    def __init__(
        self,
        *,
        store: BreakerStore,
        local: LocalBreakers,
        name: str,
        clock: Callable[[], float],
        is_temporary: Callable[[Exception], bool],
        on_store_error: Callable[[], None],
    ) -> None:
        self._store = store
        self._local = local
        self._name = name
        self._clock = clock
        self._is_temporary = is_temporary
        self._on_store_error = on_store_error
        self._known: dict[int, _CachedBreaker] = {}
        self._to_report: dict[int, _CachedBreaker] = {}
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
        """Request the state, and to be the prober of a half-open breaker; `on_state` answers."""
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
        known.is_probing = False
        self._requested.set()

    def counts(self) -> dict[str, int]:
        """How many breakers this process knows in each state."""
        counts = {"closed": 0, "open": 0, "half_open": 0}
        for known in self._known.values():
            state = "open" if known.state.is_open else "closed"
            counts["half_open" if known.is_probing else state] += 1
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
        """Drop states that are older than a minute, and old breakers of this process."""
        now = self._clock()
        self._local.forget_old(now)
        for company_id, known in list(self._known.items()):
            if known.received_at + _FORGET_SECONDS <= now and company_id not in self._to_report:
                del self._known[company_id]

    def _reporting(self, company_id: int) -> _CachedBreaker:
        known = self._known.setdefault(company_id, _CachedBreaker())
        self._to_report[company_id] = known
        return known

    def _take_reports(self) -> list[BreakerReport]:
        to_report, self._to_report = self._to_report, {}
        reports = []
        for company_id, known in to_report.items():
            outcomes, purpose = tuple(known.outcomes), known.purpose or ReportPurpose.OUTCOMES
            reports.append(BreakerReport(company_id=company_id, outcomes=outcomes, purpose=purpose))
            known.outcomes, known.purpose = [], None
        return reports

    async def _exchange(self) -> None:
        reports = self._take_reports()
        if not reports:
            return
        now = self._clock()
        # Always, so that the process's own breakers are up to date when the store fails.
        states = await self._local.exchange(reports, prober=self._name, now=now)
        if now >= self._store_down_until:
            states = await self._exchange_shared(reports, now) or states
        for report, state in zip(reports, states, strict=True):
            self._receive(report, state)

    async def _exchange_shared(
        self, reports: list[BreakerReport], now: float
    ) -> list[BreakerState] | None:
        try:
            return await self._store.exchange(reports, prober=self._name, now=now)
        except Exception as error:  # sorted: without the store for a while, or up and stop
            if not self._is_temporary(error):
                raise
            log.warning("breakers are this process's own for now", error=type(error).__name__)
            self._on_store_error()
            self._store_down_until = now + _STORE_PAUSE
            return None

    def _receive(self, report: BreakerReport, state: BreakerState) -> None:
        known = self._known.setdefault(report.company_id, _CachedBreaker())
        has_changed = known.state.is_open != state.is_open
        if has_changed:
            word = "open" if state.is_open else "closed"
            log.info("breaker", company=report.company_id, state=word)
        known.state = state
        known.received_at = self._clock()
        known.is_probing = state.is_prober
        if has_changed or report.purpose is not ReportPurpose.OUTCOMES:
            self.on_state(report.company_id, state)
