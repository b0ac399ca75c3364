"""The breaker of one company's service: closed, open, half-open. Pure.

It opens when half of the last calls have failed. After a pause one call is tried: its outcome
closes the breaker or opens it again. Each process has breakers of its own.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

BreakerStatus = Literal["closed", "open", "half_open"]

WINDOW = 20  # calls, of which half must fail
PAUSE_SECONDS = 10.0


@dataclass(slots=True)
class Breaker:
    """`outcomes` are those of the last calls; True is a failure. Times are epoch seconds."""

    window: int = WINDOW
    pause: float = PAUSE_SECONDS
    outcomes: deque[bool] = field(default_factory=deque)
    open_until: float | None = None
    is_trying: bool = False

    @property
    def is_open(self) -> bool:
        """Whether calls wait, but for the one that is tried after the pause."""
        return self.open_until is not None

    @property
    def status(self) -> BreakerStatus:
        """Half-open is a breaker whose one call is being tried."""
        if not self.is_open:
            return "closed"
        return "half_open" if self.is_trying else "open"

    def allows(self, now: float) -> bool:
        """Whether a call may begin."""
        return self.open_until is None or (now >= self.open_until and not self.is_trying)

    def begin(self) -> bool:
        """Begin a call that the breaker allows. Returns whether its outcome decides."""
        self.is_trying = self.is_open
        return self.is_trying

    def end(self, failed: bool | None, *, decides: bool, now: float) -> None:
        """Note the outcome of a call; None is no outcome. `decides` is what `begin` returned."""
        if decides:
            self.is_trying = False
        if failed is None or decides != self.is_open:
            return
        if decides:
            self.open_until = now + self.pause if failed else None
            return
        self.outcomes.append(failed)
        if len(self.outcomes) > self.window:
            self.outcomes.popleft()
        if 2 * sum(self.outcomes) >= self.window:
            self.open_until = now + self.pause
            self.outcomes.clear()
