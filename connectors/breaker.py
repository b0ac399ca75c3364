"""The breaker of a company's service: closed, open, half-open. Pure; the clock is an argument.

A closed breaker remembers the outcomes of the last calls. When enough of them are failures, the
breaker opens and no process calls the service for `pause` seconds. Then the breaker is half-open:
one process, the prober, makes one call. The outcome of that call closes the breaker or opens it
again. If the prober does not report within `lease` seconds, another process may become the prober.

engine/connector/scripts/breaker.lua has the same rules in Redis, where all processes share the
breakers; one test suite checks both.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

FORGET_SECONDS = 600.0


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


@dataclass(slots=True)
class _Breaker:
    outcomes: deque[bool] = field(default_factory=deque)
    open_until: float | None = None
    prober: str = ""
    lease_until: float = 0.0
    reported_at: float = 0.0


class LocalBreakers:
    """A BreakerStore in this process's memory, used while Redis is down. It raises no errors."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        self._breakers: dict[int, _Breaker] = {}

    async def exchange(
        self, reports: Sequence[BreakerReport], *, prober: str, now: float
    ) -> list[BreakerState]:
        return [self._apply(report, prober, now) for report in reports]

    def forget_old(self, now: float) -> None:
        """Drop the breakers that have had no report for ten minutes."""
        for company_id, breaker in list(self._breakers.items()):
            if breaker.reported_at + FORGET_SECONDS <= now:
                del self._breakers[company_id]

    def _apply(self, report: BreakerReport, prober: str, now: float) -> BreakerState:
        breaker = self._breakers.setdefault(report.company_id, _Breaker())
        breaker.reported_at = now
        if breaker.open_until is None:
            self._count(breaker, report.outcomes, now)
        elif breaker.prober == prober:
            self._end_probe(breaker, report.purpose, now)
        if breaker.open_until is None:
            return CLOSED
        is_probed = breaker.prober not in ("", prober) and now < breaker.lease_until
        may_probe = now >= breaker.open_until and not is_probed
        if may_probe and report.purpose is ReportPurpose.REQUEST_PROBE:
            breaker.prober = prober
            breaker.lease_until = now + self._policy.lease
            return BreakerState(is_open=True, is_prober=True)
        until = max(breaker.open_until, breaker.lease_until) if is_probed else breaker.open_until
        return BreakerState(is_open=True, wait=max(0.0, until - now))

    def _count(self, breaker: _Breaker, outcomes: Sequence[bool], now: float) -> None:
        breaker.outcomes.extend(outcomes)
        while len(breaker.outcomes) > self._policy.window:
            breaker.outcomes.popleft()
        if sum(breaker.outcomes) >= self._policy.failures:
            breaker.outcomes.clear()
            breaker.open_until = now + self._policy.pause

    def _end_probe(self, breaker: _Breaker, purpose: ReportPurpose, now: float) -> None:
        if purpose in (ReportPurpose.OUTCOMES, ReportPurpose.REQUEST_PROBE):
            return
        breaker.prober = ""
        if purpose is ReportPurpose.PROBE_PASSED:
            breaker.open_until = None
        elif purpose is ReportPurpose.PROBE_FAILED:
            breaker.open_until = now + self._policy.pause
