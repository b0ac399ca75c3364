"""Handles what every request needs: id, headers, deadline, log line, metrics, unexpected errors."""

import asyncio
import re
import secrets
import time

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.answers import ApiError, unavailable
from catalog.session import audit_scope

_log = structlog.get_logger(__name__)
_UNTIL_ANSWER = 30.0  # seconds
_LONGEST_ANSWER = 600.0
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_METHODS = frozenset(("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"))
_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
# The page's own script and styles are inline; its other files come from here.
_DOCS_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_POLICY = "default-src 'none'; frame-ancestors 'none'"
# An operation may set these to other values.
_HEADERS = {
    "cache-control": "no-store",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
}


class ApiMetrics:
    """The metrics of one application. The label `route` is the template: no id, no url."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "proximity_api_requests_total",
            "Requests answered",
            ["method", "route", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
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


class RequestMiddleware:
    """The outermost middleware.

    An answer begins within 30 s and ends within 10 minutes. An unexpected error is logged with the
    request's id and answered with 500 and no details; if the answer has begun, the connection ends.
    """

    def __init__(self, app: ASGIApp, *, metrics: ApiMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        scope["request_id"] = given if _SANE_ID.fullmatch(given) else secrets.token_hex(16)
        status, begun = 0, time.perf_counter()

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _add_headers(scope, message)
            await send(message)

        async def send_in_time(message: Message) -> None:
            if not status:
                deadline.reschedule(asyncio.get_running_loop().time() + _LONGEST_ANSWER)
            await send_with_headers(message)

        with (
            structlog.contextvars.bound_contextvars(request=scope["request_id"]),
            audit_scope(),
            self._metrics.in_flight.track_inprogress(),
        ):
            try:
                async with asyncio.timeout(_UNTIL_ANSWER) as deadline:
                    await self._app(scope, receive, send_in_time)
            except Exception as error:  # logged; the answer shows nothing of it
                refusal = unavailable("the answer took too long")
                if not isinstance(error, TimeoutError):
                    _log.exception("request failed", error=type(error).__name__)
                    refusal = ApiError(500, "internal error")
                if status:
                    raise ConnectionAbortedError("the answer ended too soon") from None
                await refusal.answer(scope)(scope, receive, send_with_headers)
            finally:
                self._note(scope, status, time.perf_counter() - begun)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        # All unknown paths share one name.
        route = str(getattr(scope.get("route"), "path", None) or "none")
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.seconds.labels(method, route).observe(seconds)
        about = {"method": method, "route": route, "status": status}
        milliseconds, company = round(seconds * 1000, 1), scope.get("company")
        _log.info("request", **about, milliseconds=milliseconds, company=company)


def _add_headers(scope: Scope, message: Message) -> None:
    headers = MutableHeaders(scope=message)
    policy = _DOCS_POLICY if scope["path"] == "/docs" else _POLICY
    if "etag" in headers:  # a file, which the browser asks for again
        headers.setdefault("cache-control", "no-cache")
    for name, value in (_HEADERS | {"content-security-policy": policy}).items():
        headers.setdefault(name, value)
    headers["x-request-id"] = scope["request_id"]
