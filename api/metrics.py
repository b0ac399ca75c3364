"""Metrics of the interface. The label `route` is the template: never an id, never a url."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_METHODS = frozenset(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"))


class ApiMetrics:
    """The metrics of one application, in `registry`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "proximity_api_requests_total",
            "Requests answered",
            ["method", "route", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "proximity_api_request_seconds",
            "Time from the request's head to the end of its answer",
            ["method", "route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge(
            "proximity_api_requests_in_flight",
            "Requests that are being answered",
            registry=registry,
        )

        # Finding a metric by its labels costs more than counting.
        self._found: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one."""
        known = method if method in _METHODS else "other"
        found = self._found.get((known, route, status))
        if found is None:
            found = self._found[known, route, status] = (
                self._requests.labels(known, route, str(status)),
                self._seconds.labels(known, route),
            )
        requests, duration = found
        requests.inc()
        duration.observe(seconds)
