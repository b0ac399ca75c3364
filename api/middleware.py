"""Handles what every request needs: id, headers, deadline, log line, metrics, unexpected errors."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from random import getrandbits
from typing import Any

import structlog

from api.answers import error_answer
from api.errors import ApiError, unavailable
from api.metrics import ApiMetrics
from catalog.audit import audit_scope

_log = structlog.get_logger(__name__)
_PROBES = ("/healthz", "/readyz")  # requested every few seconds: counted, not logged

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_KEEP_NOTHING = (b"cache-control", b"no-store")
_NO_FRAMES = (b"x-frame-options", b"DENY")
_NO_REFERRER = (b"referrer-policy", b"no-referrer")
# Headers that an operation may set to another value.
_DEFAULTS = (_POLICY, _KEEP_NOTHING, _NO_FRAMES, _NO_REFERRER)
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class RequestMiddleware:
    """The outermost middleware.

    `seconds` bounds the time until an answer begins, and then the time that each piece waits for a
    slow client; `whole_seconds` bounds the whole answer. An unexpected error is logged with the
    request's id and answered with 500 and no details; if the answer has begun, the connection ends.
    """

    def __init__(
        self, app: App, *, metrics: ApiMetrics, seconds: float, whole_seconds: float
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._seconds = seconds
        self._whole_seconds = whole_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send, self._seconds, self._whole_seconds)
        begun = time.perf_counter()
        exchange.scope["request_id"] = exchange.id
        bound = structlog.contextvars.bind_contextvars(request=exchange.id)
        try:
            with audit_scope(), self._metrics.in_flight.track_inprogress():
                await self._answer(exchange, receive)
        finally:
            self._note(exchange, time.perf_counter() - begun)
            structlog.contextvars.reset_contextvars(**bound)

    async def _answer(self, exchange: "_Exchange", receive: Receive) -> None:
        try:
            try:
                async with asyncio.timeout(self._seconds) as exchange.deadline:
                    await self._app(exchange.scope, receive, exchange.send)
            finally:
                # The answers below are sent after the deadline.
                exchange.deadline = None
        except TimeoutError as error:
            await _give_up(exchange, error, unavailable("the answer took too long"))
        except Exception as error:  # logged; the answer shows nothing of it
            _log.exception("request failed", error=type(error).__name__)
            await _give_up(exchange, error, ApiError(500, "internal error"))

    def _note(self, exchange: "_Exchange", seconds: float) -> None:
        method, route = exchange.scope["method"], _route(exchange.scope)
        self._metrics.answered(method, route, exchange.status, seconds)
        if route in _PROBES:
            return
        _log.info(
            "request",
            method=method,
            route=route,
            status=exchange.status,
            milliseconds=round(seconds * 1000, 1),
            company=exchange.scope.get("company"),
        )


async def _give_up(exchange: "_Exchange", error: Exception, refusal: ApiError) -> None:
    if exchange.status:
        raise error
    await error_answer(refusal)(exchange.scope, _nothing, exchange.send)


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


class _Exchange:
    """A request and the state of its answer; `status` is 0 until the answer begins."""

    def __init__(self, scope: Scope, send: Send, seconds: float, whole_seconds: float) -> None:
        self.scope = scope
        self.status = 0
        self.deadline: asyncio.Timeout | None = None
        self._send = send
        self._seconds = seconds
        self._end = time.monotonic() + whole_seconds
        given = next((v for k, v in scope["headers"] if k == b"x-request-id"), b"")
        self.id = given.decode() if _SANE_ID.fullmatch(given) else f"{getrandbits(128):032x}"

    async def send(self, message: Message) -> None:
        """Send a message, with the headers that every answer has."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = self._with_ours(message["headers"])
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            return  # it was the last piece
        if self.deadline is not None and not self.deadline.expired():
            # A piece was sent, so the time of the next piece begins.
            self.deadline.reschedule(min(time.monotonic() + self._seconds, self._end))

    def _with_ours(self, headers: Any) -> list[tuple[bytes, bytes]]:
        given = list(headers)
        names = {name for name, _ in given}
        defaults = [own for own in _DEFAULTS if own[0] not in names]
        return [*given, *_HEADERS, *defaults, (b"x-request-id", self.id.encode())]


def _route(scope: Scope) -> str:
    """The template of the route; all unknown paths share one."""
    route = scope.get("route")
    return str(getattr(route, "path", None) or "none")
