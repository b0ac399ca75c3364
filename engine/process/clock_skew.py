"""Measures how far this process's clock is from the servers' clocks.

Rules compare detected_at with the current time. If a trigger's clock is minutes off, every
detection seems stale or from the future: nothing fires, and the offsets move on.
"""

import time
from collections.abc import Awaitable, Callable, Mapping

import structlog
from prometheus_client import Gauge

from catalog.deadline import within

log = structlog.get_logger(__name__)

ReadClock = Callable[[], Awaitable[float]]


class ClockSkew:
    """Compares the clock with those of servers; `read` has a reader of epoch seconds by name.

    Logs when a server's clock begins to differ by more than `limit` seconds, and when it no longer
    does.
    """

    def __init__(
        self,
        *,
        read: Mapping[str, ReadClock],
        limit: float,
        gauge: Gauge,
        deadline: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.limit = limit
        self._read = read
        self._gauge = gauge
        self._deadline = deadline
        self._clock = clock
        self._skews: dict[str, float] = {}
        self._reported: set[str] = set()

    def agreed(self) -> float:
        """The seconds by which this clock is ahead of all servers (below 0: behind all of them).

        The smallest difference counts. It is 0 if servers disagree or none has answered: one server
        with a wrong clock does not make this clock wrong.
        """
        skews = self._skews.values()
        if not skews or min(skews) < 0 < max(skews):
            return 0.0
        return min(skews, key=abs)

    def agrees_within(self, seconds: float) -> bool:
        """Whether this clock is not known to be wrong by more than these seconds."""
        return abs(self.agreed()) <= seconds

    async def measure(self, server: str) -> None:
        """Ask one server for its time. Raises the errors of its reader, and TimeoutError."""
        began, tick = self._clock(), time.monotonic()
        there = await within(self._deadline, self._read[server]())
        took = time.monotonic() - tick
        skew = began + took / 2 - there
        # The answer travelled for an unknown part of the request's time; only the rest is certain.
        certain = max(0.0, abs(skew) - took / 2)
        self._note(server, certain if skew > 0 else -certain)

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of the servers."""
        return tuple(self._read)

    def _note(self, server: str, skew: float) -> None:
        self._skews[server] = skew
        self._gauge.labels(server).set(skew)
        large = abs(skew) > self.limit
        if large and server not in self._reported:
            self._reported.add(server)
            log.error(
                "this process's clock differs from a server's: detections are taken for too old "
                "or from the future; set the clocks by NTP",
                server=server,
                seconds_ahead=round(skew, 1),
            )
        elif not large and server in self._reported:
            self._reported.discard(server)
            log.warning("the clocks agree again", server=server, seconds_ahead=round(skew, 1))
