"""The breaker of a company's service: closed, open, half-open. Pure; clock is an argument.

Closed, it keeps the last outcomes. When enough of them are failures it opens: nobody calls for
`pause` seconds. Then it is half-open: exactly one caller may try, the prober; what that one finds
closes it, or opens it again. A prober that is not heard of for `lease` seconds has gone.

The same rules stand in Lua, in Redis, where all workers share them; one suite checks both.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

FORGET_SECONDS = 600.0


class Wish(StrEnum):
    """What a report is for, besides its outcomes."""

    TELL = "tell"  # and to hear how it stands
    ASK = "ask"  # to be the prober, if it is open and one is due
    PASSED = "passed"  # the prober's try did well
    FAILED = "failed"  # it did not
    LEAVE = "leave"  # the prober made no try after all


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """Opens at `failures` among the last `window` calls. `pause` and `lease` in seconds."""

    window: int = 20
    failures: int = 10
    pause: float = 10.0
    lease: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What one process tells of a company: outcomes since the last report, True for a failure."""

    company_id: int
    outcomes: tuple[bool, ...] = ()
    wish: Wish = Wish.TELL


@dataclass(frozen=True, slots=True)
class Standing:
    """How a breaker stands. Open: ask again in `wait` seconds, unless `is_prober`: then call."""

    is_open: bool = False
    is_prober: bool = False
    wait: float = 0.0


CLOSED = Standing()


class BreakerStore(Protocol):
    """Where breakers stand. `prober` names the process that reports; `now` is epoch seconds.

    One standing a report, in order. May raise what its medium raises.
    """

    async def exchange(
        self, reports: Sequence[Report], *, prober: str, now: float
    ) -> list[Standing]: ...


@dataclass(slots=True)
class _State:
    outcomes: deque[bool] = field(default_factory=deque)
    open_until: float | None = None
    prober: str = ""
    lease_until: float = 0.0
    touched: float = 0.0


class LocalBreakers:
    """Breakers of this process alone: what there is while Redis is away."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        self._states: dict[int, _State] = {}

    async def exchange(
        self, reports: Sequence[Report], *, prober: str, now: float
    ) -> list[Standing]:
        """As BreakerStore says; raises nothing."""
        return [self._one(report, prober, now) for report in reports]

    def forget_old(self, now: float) -> None:
        """Drop what nobody has reported on for ten minutes."""
        old = [c for c, state in self._states.items() if state.touched + FORGET_SECONDS <= now]
        for company_id in old:
            del self._states[company_id]

    def _one(self, report: Report, prober: str, now: float) -> Standing:
        state = self._states.setdefault(report.company_id, _State())
        state.touched = now
        if state.open_until is None:
            self._count(state, report.outcomes, now)
        else:
            self._hear_prober(state, report.wish, prober, now)
        if state.open_until is None:
            return CLOSED
        return self._open(state, report.wish, prober, now)

    def _count(self, state: _State, outcomes: Sequence[bool], now: float) -> None:
        state.outcomes.extend(outcomes)
        while len(state.outcomes) > self._policy.window:
            state.outcomes.popleft()
        if sum(state.outcomes) >= self._policy.failures:
            state.outcomes.clear()
            state.open_until = now + self._policy.pause
            state.prober = ""

    def _hear_prober(self, state: _State, wish: Wish, prober: str, now: float) -> None:
        """What the prober found; a process that is not the prober any more is not heard."""
        if state.prober != prober or wish in (Wish.TELL, Wish.ASK):
            return
        state.prober = ""
        if wish is Wish.PASSED:
            state.open_until = None
        elif wish is Wish.FAILED:
            state.open_until = now + self._policy.pause

    def _open(self, state: _State, wish: Wish, prober: str, now: float) -> Standing:
        assert state.open_until is not None  # noqa: S101  # asked only when open
        probed = state.prober not in ("", prober) and now < state.lease_until
        if wish is Wish.ASK and now >= state.open_until and not probed:
            state.prober = prober
            state.lease_until = now + self._policy.lease
            return Standing(is_open=True, is_prober=True)
        until = max(state.open_until, state.lease_until if probed else 0.0)
        return Standing(is_open=True, wait=max(0.0, until - now))
