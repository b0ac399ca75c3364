"""Tracks whether a server answers: failures are counted, and an outage is logged once."""

import time
from collections.abc import Callable

import structlog
from prometheus_client import Counter

from engine.process.failures import describe

log = structlog.get_logger(__name__)

_QUIET_SECONDS = 10.0
_FORGOTTEN_SECONDS = 60.0


class ServerErrors:
    """The failed calls to one server: a counter, a log line for the outage and one for its end.

    `operation` names a kind of call. Some kinds may fail while others succeed (a full Redis answers
    a ping). So the outage ends when each kind that failed has succeeded, or was not tried for a
    minute. A server that comes and goes is logged every 10 s at most. `may_recover` is the function
    of failures.py for this server. Without `counter` nothing is counted.
    """

    def __init__(
        self,
        server: str,
        counter: Counter | None = None,
        *,
        may_recover: Callable[[Exception], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.may_recover = may_recover
        self._server = server
        self._counter = counter
        self._clock = clock
        self._failing: dict[str, float] = {}
        self._since = 0.0
        self._failures = 0
        self._is_logged = False
        self._back_at = float("-inf")

    def inc(self) -> None:
        """Count a failed call without a log line."""
        if self._counter is not None:
            self._counter.inc()

    def failed(self, error: BaseException, operation: str) -> None:
        """Count a failed call that will be retried, and log the beginning of an outage."""
        self.inc()
        self.lost(operation, describe(error))

    def lost(self, operation: str, error: str) -> None:
        """As `failed`, for a call that is counted already."""
        now = self._clock()
        if not self._failing:
            self._since, self._failures, self._is_logged = now, 0, False
        self._failing[operation] = now
        self._failures += 1
        if not self._is_logged and now >= self._back_at + _QUIET_SECONDS:
            self._is_logged = True
            log.error(
                "server failed, trying again", server=self._server, what=operation, error=error
            )

    def answered(self, operation: str) -> None:
        """A call succeeded. Costs nothing unless a call failed before."""
        if not self._failing:
            return
        now = self._clock()
        for kind, last in list(self._failing.items()):
            if kind == operation or now - last > _FORGOTTEN_SECONDS:
                del self._failing[kind]
        if self._failing:
            return
        if self._is_logged:
            self._back_at = now
            log.warning(
                "server answers again",
                server=self._server,
                seconds=round(now - self._since, 1),
                failures=self._failures,
            )
