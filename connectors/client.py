"""One HTTP exchange with a customer's service: httpx on the transport of aiohttp.

The transport is used without httpx's client, so there are no cookies, no redirects, no proxies or
credentials from the environment, and no log lines with a url.
"""

import asyncio
import socket
import ssl
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakSet

import aiohttp
import httpx
import msgspec
import structlog
from aiohttp.http_exceptions import BadHttpMessage
from httpx_aiohttp import AiohttpTransport

from connectors.egress import EgressGuard, is_literal
from connectors.errors import HostUnresolvedError, ReplyLimitError, UrlForbiddenError
from connectors.model import Call, CallFault, Content, Declined, Failed, Format
from connectors.request import build_request

log = structlog.get_logger(__name__)

_HEAD_BYTES = 64 * 1024
_HEAD_LINES = 1000
_BODY_BYTES = 64 * 1024
_WIRE_BYTES = 144 * 1024  # with framing, headers and interim replies
_MOST_PIECES = 1000  # reads of the socket, and HTTP chunks
_PIECE_BYTES = 4096  # read at once: a reply that is slow to parse lets others have their turn
_IDLE_SECONDS = 10.0
_MOST_OPEN = 768  # connections of a process; beyond, none is kept for another call
_MOST_SPOILED = 8  # kept connections that are passed over for one call
_CACHED_NAMES_SECONDS = 5
_OK = 200
_NO_CONTENT = 204
_RETRIED = frozenset({429, 502, 503, 504})
_TOO_MANY = 429
_SERVER_ERROR = 500
_LONGEST_DATE = 64
_DISCONNECTED = (aiohttp.ServerDisconnectedError, ConnectionError)  # before a reply


class Reply(NamedTuple):
    """A complete reply. Header names are looked up in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class _Exchange:
    """The exchange that the current task makes, with what it has received so far, below TLS."""

    has_connected: bool = False
    received: int = 0
    pieces: int = 0
    exceeded: ReplyLimitError | None = None
    content: aiohttp.StreamReader | None = None
    has_ended: bool = False

    def count(self, size: int) -> None:
        """Count received data. Raises ReplyLimitError."""
        self.received += size
        self.pieces += 1
        if self.received > _WIRE_BYTES or self.pieces > _MOST_PIECES:
            most = f"{_WIRE_BYTES} bytes in all, or {_MOST_PIECES} pieces"
            self.exceeded = ReplyLimitError(f"a reply of more than {most}")
            raise self.exceeded


_exchange: ContextVar[_Exchange] = ContextVar("exchange")


class _BoundedSocket(socket.socket):
    """Counts what it receives for the exchange that sent last; too much ends the connection."""

    exchange: _Exchange

    def send(self, *arguments: Any) -> int:
        self._begin()
        return super().send(*arguments)

    def sendmsg(self, *arguments: Any) -> int:
        self._begin()
        return super().sendmsg(*arguments)

    def recv(self, size: int, *flags: int) -> bytes:
        data = super().recv(min(size, _PIECE_BYTES), *flags)
        self.exchange.count(len(data))
        return data

    def recv_into(self, buffer: Any, size: int = 0, *flags: int) -> int:
        count = super().recv_into(buffer, min(size or len(buffer), _PIECE_BYTES), *flags)
        self.exchange.count(count)
        return count

    def _begin(self) -> None:
        sending = _exchange.get(self.exchange)
        if not sending.has_ended:  # else TLS itself sends
            self.exchange = sending


class _Response(aiohttp.ClientResponse):
    """Gives the exchange its body: the stream of httpx does not tell where an HTTP chunk ends."""

    async def start(self, connection: Any) -> Any:
        await super().start(connection)
        _exchange.get().content = self.content
        return self


class _GuardedConnector(aiohttp.TCPConnector):
    """Connects where the guard allows, and reuses no connection on which data came unasked."""

    guard: EgressGuard

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Any],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # aiohttp's
    ) -> Any:
        host, port = req.url.raw_host or "", req.url.port or 0
        if is_literal(host):  # aiohttp resolves names only
            self.guard.check_literal(host, port)
        for _ in range(_MOST_SPOILED):
            connection = await super().connect(req, traces, timeout)
            if connection.protocol is not None and not connection.protocol.should_close:
                return connection
            connection.close()
        raise aiohttp.ServerDisconnectedError


@dataclass(kw_only=True, eq=False)
class ServiceCaller:
    """Makes calls: guarded, bounded in time and size, without redirects. The owner closes it.

    In seconds: `connect` to look a name up and connect, TLS included; `deadline` for a whole call.
    """

    egress: EgressGuard
    ssl_context: ssl.SSLContext
    connect: float = 1.0
    deadline: float = 3.0

    def __post_init__(self) -> None:
        self._sockets = WeakSet[socket.socket]()
        self._transport = AiohttpTransport(verify=self.ssl_context, client=self._session)

    async def send(self, request: httpx.Request) -> Reply:
        """Send one request and read its whole reply. Raises Failed.

        The service may have closed an idle connection in the moment of its use: then the request is
        sent once more over a new one. The service recognises the repeat by its idempotency-key.
        """
        exchange = _Exchange()
        _exchange.set(exchange)
        connect = {"connect": self.connect, "pool": self.connect, "read": None}
        request.extensions = {"timeout": connect}
        if len(self._sockets) > _MOST_OPEN:
            request.headers["connection"] = "close"
        try:
            self.egress.check_url(str(request.url))
            async with asyncio.timeout(self.deadline):
                try:
                    return await self._try(request)
                except httpx.TransportError as error:
                    if exchange.has_connected or not _first(_causes(error), *_DISCONNECTED):
                        raise
                    return await self._try(request)
        except Exception as error:
            raise _failed(exchange.exceeded or error) from None
        finally:
            exchange.has_ended = True

    async def close(self) -> None:
        await self._transport.aclose()

    async def _try(self, request: httpx.Request) -> Reply:
        response = await self._transport.handle_async_request(request)
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101
        try:
            body = await _read_body()
        finally:
            await response.stream.aclose()
        return Reply(response.status_code, response.headers, body)

    def _session(self) -> aiohttp.ClientSession:
        connector = _GuardedConnector(
            resolver=self.egress,
            ttl_dns_cache=_CACHED_NAMES_SECONDS,
            ssl=self.ssl_context,
            limit=0,  # the scheduler bounds the calls in flight
            keepalive_timeout=_IDLE_SECONDS,
            socket_factory=self._socket,
        )
        connector.guard = self.egress
        return aiohttp.ClientSession(
            connector=connector,
            response_class=_Response,
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=_HEAD_BYTES,
            max_field_size=_HEAD_BYTES,
            max_headers=_HEAD_LINES,
        )

    def _socket(self, address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        made = _BoundedSocket(family, kind, protocol)
        made.exchange = _exchange.get()
        made.exchange.has_connected = True
        self._sockets.add(made)
        return made


async def _read_body() -> bytes:
    content = _exchange.get().content
    assert content is not None  # noqa: S101
    body, chunks = bytearray(), 0
    async for piece, is_chunk in content.iter_chunks():
        body += piece
        chunks += is_chunk
        if len(body) > _BODY_BYTES or chunks > _MOST_PIECES:
            most = f"{_BODY_BYTES} bytes, or {_MOST_PIECES} chunks"
            raise ReplyLimitError(f"a reply of more than {most}")
        if content.at_eof():  # the iteration over aiohttp's empty stream has no end
            break
    return bytes(body)


def _causes(error: BaseException) -> list[BaseException]:
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    return causes


def _first(causes: list[BaseException], *kinds: type[BaseException]) -> Any:
    return next((each for each in causes if isinstance(each, kinds)), None)


def _failed(error: Exception) -> Exception:
    """Failed for an error of an exchange; the error itself if it is no known one."""
    causes = _causes(error)
    if forbidden := _first(causes, UrlForbiddenError):
        return Failed(CallFault.FORBIDDEN, str(forbidden))
    if limit := _first(causes, ReplyLimitError):
        return Failed(CallFault.REPLY_TOO_LARGE, str(limit), counts=True)
    head = _first(causes, BadHttpMessage)
    if head is not None and head.message.startswith(("Got more", "Too many")):
        return Failed(CallFault.REPLY_TOO_LARGE, "a head that is too large", counts=True)
    if not _first(causes, aiohttp.ClientError, OSError, HostUnresolvedError):
        return error
    fault, system = CallFault.UNREACHABLE, _first(causes, OSError)
    detail = getattr(system, "strerror", None) or "it hung up, or does not speak HTTP/1.1"
    if _first(causes, TimeoutError):
        fault, detail = CallFault.TIMEOUT, "no reply in time"
    elif tls := _first(causes[::-1], ssl.SSLError):  # aiohttp's own errors are of this type too
        reason = getattr(tls, "verify_message", None) or getattr(tls, "reason", None)
        fault, detail = CallFault.TLS, f"TLS: {reason or 'failed'}"
    elif unresolved := _first(causes, HostUnresolvedError):
        detail = str(unresolved)
    return Failed(fault, detail, retriable=True, counts=True)


def client_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """The TLS settings: services are verified by public authorities and those in a PEM file.

    Raises OSError if the file cannot be read or holds no certificate.
    """
    context = httpx.create_ssl_context(trust_env=False)
    context.set_alpn_protocols(["http/1.1"])
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    return context


class _Document(msgspec.Struct):
    """The JSON object in a reply. Unknown fields are ignored."""

    format: Format | None = None
    send: bool = True
    title: str | None = None
    push: str | None = None
    template: str | None = None
    url: str | None = None
    html: str | None = None


_decode = msgspec.json.Decoder(_Document).decode


def read_reply(reply: Reply, *, now: float) -> Content | Declined:
    """The result in a reply. `now` (epoch s) is for a Retry-After that is a date. Raises Failed."""
    status, headers, body = reply
    if status == _NO_CONTENT:
        return Declined()
    if status != _OK:
        raise Failed(
            CallFault.STATUS,
            f"status {status}",
            retriable=status in _RETRIED,
            counts=status == _TOO_MANY or status >= _SERVER_ERROR,
            retry_after=retry_after(headers.get("retry-after", ""), now),
        )
    if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise Failed(CallFault.REPLY, "a reply in a content-encoding that was not accepted")
    try:
        document = _decode(body)
    except msgspec.ValidationError as error:
        # The error's text may quote a value; the path behind it names only fields of ours.
        _, _, path = str(error).rpartition(" - at ")
        detail = f"a wrong value at {path}" if " - at " in str(error) else "not a JSON object"
        raise Failed(CallFault.REPLY, detail) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Failed(CallFault.REPLY, "not JSON in UTF-8") from None
    if not document.send:
        return Declined()
    format_ = document.format
    if format_ is None:
        raise Failed(CallFault.REPLY, "format is missing; accepted: template, url, html")
    content: str | None = getattr(document, format_)
    if content is None or not content.strip():
        raise Failed(CallFault.REPLY, f"format is {format_}, but that field is empty")
    return Content(format=format_, content=content, title=document.title, push=document.push)


def retry_after(value: str, now: float) -> float | None:
    """The seconds of a Retry-After header; None if it is neither number nor date."""
    with suppress(ValueError, OverflowError, TypeError, LookupError):  # the date parser's, too
        if value.strip().isdigit():
            return float(value)
        date = parsedate_to_datetime(value[:_LONGEST_DATE])
        return max(0.0, date.replace(tzinfo=date.tzinfo or UTC).timestamp() - now)
    return None


async def call_service(
    caller: ServiceCaller, call: Call, agent: str, seen: list[httpx.Request | Reply] | None = None
) -> Content | Declined:
    """One try of a call: its request, the exchange, its reply. `seen` gets what there was of them.

    Raises Failed only, whatever the connector holds and the service answers. The log has the place
    of an unforeseen error but not its message, which may quote the service's reply.
    """
    fault, call.status = CallFault.REQUEST, None
    try:
        request = build_request(call, agent=agent, now=time.time())
        fault, seen = CallFault.REPLY, [] if seen is None else seen
        seen.append(request)
        reply = await caller.send(request)
        seen.append(reply)
        call.status = reply.status
        return read_reply(reply, now=time.time())
    except Failed:
        raise
    except Exception as error:
        if fault is CallFault.REQUEST and isinstance(error, ValueError):
            detail = "the connector's url or parameters make no valid request"
            raise Failed(fault, detail) from None
        kind, place = type(error).__name__, traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        about = {"company": call.company_id, "error": kind, "where": where}
        log.error("call_failed_unforeseen", **about)  # noqa: TRY400
        raise Failed(fault, f"an unforeseen error ({kind})", counts=True) from None
