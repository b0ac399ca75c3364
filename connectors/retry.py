"""When a failed call is tried again. Pure: chance and clock are arguments."""

from dataclasses import dataclass

from connectors.errors import CallError


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """`tries` in all; the wait before try n+1 is `first` * 2 ** (n-1) seconds at most, half at
    least, and never less than what the service asked for."""

    tries: int = 3
    first: float = 0.5

    def next_try(
        self, *, tried: int, error: CallError, now: float, fresh_until: float, chance: float
    ) -> float | None:
        """The time (epoch s) of the next try after `tried` ones, or None: there is none.

        `chance` in [0, 1) spreads the tries. No try begins at or after `fresh_until`.
        """
        if not error.retriable or tried >= self.tries:
            return None
        wait = self.first * 2.0 ** (tried - 1) * (0.5 + chance / 2)
        at = now + max(wait, error.retry_after or 0.0)
        return at if at < fresh_until else None
