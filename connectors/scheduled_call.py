"""One call while it is scheduled: its tries so far, and when it is tried again."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from connectors.errors import CallError
from connectors.model import Call, CallFault, CallResult, Failed

OnResult = Callable[[CallResult], None]

_FAILED_UNTRIED = {
    CallFault.BREAKER: "the company's service kept failing until the detection was too old",
    CallFault.STALE: "the detection was too old when the call's turn came",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and when a call is tried.

    A call has at most `tries` tries. The wait before try n+1 is between a half and the whole of
    `first` * 2 ** (n-1) seconds, but not shorter than the service's Retry-After.
    """

    tries: int = 3
    first: float = 0.5

    def next_try(
        self, *, tried: int, error: CallError, now: float, fresh_until: float, chance: float
    ) -> float | None:
        """The time (epoch s) of the next try after `tried` tries, or None for no more tries.

        `chance` in [0, 1) spreads the tries. No try begins at or after `fresh_until`.
        """
        if not error.retriable or tried >= self.tries:
            return None
        wait = self.first * 2.0 ** (tried - 1) * (0.5 + chance / 2)
        at = now + max(wait, error.retry_after or 0.0)
        return at if at < fresh_until else None


class Tries(NamedTuple):
    """How many tries were made; duration (s) and HTTP status of the last one."""

    made: int = 0
    seconds: float | None = None
    status: int | None = None


@dataclass(slots=True, eq=False)
class ScheduledCall:
    """A call without a result yet. `task` is the try in flight, `retry` the timer of the next try.

    `seconds` and `status` are those of the last try.
    """

    call: Call
    on_result: OnResult
    tried: int = 0
    seconds: float | None = None
    status: int | None = None
    # Not the error: its traceback would keep this object and all data of the try in memory.
    failure: Failed | None = None
    task: asyncio.Task[bool | None] | None = None
    retry: asyncio.TimerHandle | None = None
    ended: bool = False

    @property
    def company_id(self) -> int:
        return self.call.company_id

    @property
    def tries(self) -> Tries:
        return Tries(self.tried, self.seconds, self.status)

    def is_stale(self, now: float) -> bool:
        """Whether the detection is too old for another try. `now` in epoch seconds."""
        return self.call.fresh_until <= now

    def failed(self, untried: CallFault) -> Failed:
        """The failure of the last try, or a failure with the fault `untried` without any try."""
        if self.failure is None:
            return Failed(untried, _FAILED_UNTRIED[untried])
        tries = "1 try" if self.tried == 1 else f"{self.tried} tries"
        return Failed(self.failure.fault, f"{self.failure.detail}; {tries}")
