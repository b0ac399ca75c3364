"""Calls in hand, and how many of them a company may have."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from connectors.model import Call, CallFault, Failed, Result

OnResult = Callable[[Result], None]

_UNTRIED = {
    CallFault.BREAKER: "the company's service kept failing until the detection was too old",
    CallFault.STALE: "the detection was too old when the call's turn came",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """Calls in flight, of one company and in all; calls taken in and not finished, in all."""

    company: int = 32
    in_all: int = 512
    unfinished: int = 50_000


class Tries(NamedTuple):
    """How many there were; how long the last one took, and what status it was answered with."""

    made: int
    seconds: float | None
    status: int | None


NO_TRIES = Tries(0, None, None)


class Job:
    """A call on its way. Identity is what counts. `seconds` and `status` are the last try's."""

    __slots__ = (
        "call",
        "ended",
        "failure",
        "on_result",
        "retry",
        "seconds",
        "status",
        "task",
        "tried",
    )

    def __init__(self, call: Call, on_result: OnResult) -> None:
        self.call = call
        self.on_result = on_result
        self.tried = 0
        self.seconds: float | None = None
        self.status: int | None = None
        # Not the error itself: its traceback leads back here, and to all that the try has read.
        self.failure: Failed | None = None
        self.task: asyncio.Task[bool | None] | None = None
        self.retry: asyncio.TimerHandle | None = None
        self.ended = False

    @property
    def tries(self) -> Tries:
        """Its tries so far."""
        return Tries(self.tried, self.seconds, self.status)

    def failed(self, otherwise: CallFault) -> Failed:
        """The last try's failure, or `otherwise` where there was no try."""
        if self.failure is None:
            return Failed(otherwise, _UNTRIED[otherwise])
        tries = "1 try" if self.tried == 1 else f"{self.tried} tries"
        return Failed(self.failure.fault, f"{self.failure.detail}; {tries}")


class Intake:
    """Counts the jobs that have not ended, by company.

    A company may have as many as there is room left for all (the dynamic threshold of Choudhury
    and Hahne): alone it gets half of the room, and the more of them hang the less each has, but
    some is always left.
    """

    def __init__(self, most: int) -> None:
        self.total = 0
        self._most = most
        self._of: Counter[int] = Counter()

    def admit(self, company_id: int) -> bool:
        """Count one more, if there is room for it."""
        if self._of[company_id] >= self._most - self.total:
            return False
        self._of[company_id] += 1
        self.total += 1
        return True

    def leave(self, company_id: int) -> None:
        """One has ended."""
        self.total -= 1
        self._of[company_id] -= 1
        if not self._of[company_id]:
            del self._of[company_id]

    def of(self, company_id: int) -> int:
        """How many a company has."""
        return self._of.get(company_id, 0)
