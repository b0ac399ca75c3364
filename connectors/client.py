"""One HTTP exchange with a customer's service: httpx on the transport of aiohttp.

The transport is used without httpx's client, so there are no cookies, no redirects, no proxies or
credentials from the environment, and no log lines with a url.
"""

import asyncio
import socket
import ssl
import traceback
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakSet

import aiohttp
import httpx
import structlog
from aiohttp.http_exceptions import BadHttpMessage
from httpx_aiohttp import AiohttpTransport

from connectors.egress import EgressGuard, is_literal
from connectors.errors import (
    CallError,
    HostUnresolvedError,
    ReplyLimitError,
    UrlForbiddenError,
)
from connectors.model import Call, CallFault, Content, Declined
from connectors.reply import read_reply
from connectors.request import Request, build_request

log = structlog.get_logger(__name__)

_HEAD_BYTES = 64 * 1024
_HEAD_LINES = 1000
_PIECE_BYTES = 4096  # read at once: a reply that is slow to parse lets others have their turn
_IDLE_SECONDS = 10.0
_MOST_OPEN = 768  # connections of a process; beyond, none is kept for another call
_MOST_SPOILED = 8  # kept connections that are passed over for one call
_CACHED_NAMES_SECONDS = 5
_DISCONNECTED = (aiohttp.ServerDisconnectedError, ConnectionError)  # before a reply


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete reply. Header names are looked up in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """The limits of one call.

    `connect` (look-up, TCP and TLS) and `call` (the whole call) are in seconds. A reply may have
    `reply_bytes` of body, `overhead_bytes` besides on the wire, and come in `pieces`: as many reads
    of the socket, and as many HTTP chunks.
    """

    connect: float = 1.0
    call: float = 3.0
    reply_bytes: int = 65_536
    overhead_bytes: int = 81_920
    pieces: int = 1000


@dataclass(slots=True)
class _Exchange:
    """The exchange that the current task makes, with what it has received so far, below TLS."""

    company_id: int
    limits: CallLimits
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
        most = self.limits.reply_bytes + self.limits.overhead_bytes
        if self.received > most:
            self.exceeded = ReplyLimitError(f"a reply of more than {most} bytes in all")
        elif self.pieces > self.limits.pieces:
            self.exceeded = ReplyLimitError(f"a reply in more than {self.limits.pieces} pieces")
        if self.exceeded is not None:
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


class _CompanyRequest(aiohttp.ClientRequest):
    """A request whose connection serves calls of the same company only."""

    @property
    def connection_key(self) -> Any:
        # Without proxies this part of the key is free.
        return super().connection_key._replace(proxy_headers_hash=_exchange.get().company_id)


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


class ServiceCaller:
    """Makes calls: guarded, bounded in time and size, without redirects. The owner closes it.

    It belongs to one event loop, from the first call to `close`.
    """

    def __init__(
        self, *, egress: EgressGuard, ssl_context: ssl.SSLContext, limits: CallLimits
    ) -> None:
        self._egress = egress
        self._limits = limits
        self._ssl_context = ssl_context
        self._sockets = WeakSet[socket.socket]()
        self._transport = AiohttpTransport(verify=ssl_context, client=self._session)
        seconds = {"connect": limits.connect, "pool": limits.connect, "read": None}
        self._extensions = {"timeout": seconds}

    async def send(self, company_id: int, request: Request) -> Reply:
        """Send one request and read its whole reply. Raises CallError.

        The service may have closed an idle connection in the moment of its use: then the request is
        sent once more over a new one. The service recognises the repeat by its idempotency-key.
        """
        exchange = _Exchange(company_id, self._limits)
        _exchange.set(exchange)
        try:
            self._egress.check_url(request.url)
            async with asyncio.timeout(self._limits.call):
                try:
                    return await self._request(request)
                except httpx.TransportError as error:
                    if exchange.has_connected or not _first(_causes(error), *_DISCONNECTED):
                        raise
                    return await self._request(request)
        except Exception as error:
            raise _failed(exchange.exceeded or error) from None
        finally:
            exchange.has_ended = True

    async def close(self) -> None:
        await self._transport.aclose()

    async def _request(self, request: Request) -> Reply:
        url = _parsed(request.url)
        headers = [(b"host", url.netloc), *request.headers]
        if request.method == "POST":
            headers.append((b"content-length", b"%d" % len(request.body)))
        if len(self._sockets) > _MOST_OPEN:
            headers.append((b"connection", b"close"))
        # (A stream of a content that is read takes a third of the time of `content=`.)
        made = httpx.Request(
            request.method,
            url,
            headers=httpx.Headers(headers, encoding="utf-8"),
            stream=httpx.ByteStream(request.body),
            extensions=self._extensions,
        )
        made.read()
        response = await self._transport.handle_async_request(made)
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101
        try:
            body = await self._read_body()
        finally:
            await response.stream.aclose()
        return Reply(response.status_code, response.headers, body)

    async def _read_body(self) -> bytes:
        content, limits = _exchange.get().content, self._limits
        assert content is not None  # noqa: S101
        body, chunks = bytearray(), 0
        async for piece, is_chunk in content.iter_chunks():
            body += piece
            chunks += is_chunk
            if len(body) > limits.reply_bytes:
                raise ReplyLimitError(f"a reply of more than {limits.reply_bytes} bytes")
            if chunks > limits.pieces:
                raise ReplyLimitError(f"a reply of more than {limits.pieces} chunks")
            if content.at_eof():  # the iteration over aiohttp's empty stream has no end
                break
        return bytes(body)

    def _session(self) -> aiohttp.ClientSession:
        connector = _GuardedConnector(
            resolver=self._egress,
            ttl_dns_cache=_CACHED_NAMES_SECONDS,
            ssl=self._ssl_context,
            limit=0,  # the scheduler bounds the calls in flight
            keepalive_timeout=_IDLE_SECONDS,
            socket_factory=self._socket,
        )
        connector.guard = self._egress
        return aiohttp.ClientSession(
            connector=connector,
            request_class=_CompanyRequest,
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


@lru_cache(maxsize=1024)
def _parsed(url: str) -> httpx.URL:
    """Raises httpx.InvalidURL. Most calls of a connector have the same url."""
    return httpx.URL(url)


def _causes(error: BaseException) -> list[BaseException]:
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    return causes


def _first(causes: list[BaseException], *kinds: type[BaseException]) -> Any:
    return next((each for each in causes if isinstance(each, kinds)), None)


def _failed(error: Exception) -> Exception:
    """The CallError for an error of an exchange; the error itself if it is no known one."""
    causes = _causes(error)
    if forbidden := _first(causes, UrlForbiddenError):
        return CallError(CallFault.FORBIDDEN, str(forbidden))
    if limit := _first(causes, ReplyLimitError):
        return CallError(CallFault.REPLY_TOO_LARGE, str(limit), counts=True)
    head = _first(causes, BadHttpMessage)
    if head is not None and head.message.startswith(("Got more", "Too many")):
        return CallError(CallFault.REPLY_TOO_LARGE, "a head that is too large", counts=True)
    if _first(causes, aiohttp.ClientError, OSError, HostUnresolvedError):
        fault, detail = _network_fault(causes)
        return CallError(fault, detail, retriable=True, counts=True)
    if _first(causes, httpx.InvalidURL, ValueError):
        return CallError(CallFault.REQUEST, "url or parameters make no valid request")
    return error


def _network_fault(causes: list[BaseException]) -> tuple[CallFault, str]:
    if _first(causes, TimeoutError):
        return CallFault.TIMEOUT, "no reply in time"
    if tls := _first(causes[::-1], ssl.SSLError):  # aiohttp's own errors are of this type too
        reason = getattr(tls, "verify_message", None) or getattr(tls, "reason", None)
        return CallFault.TLS, f"TLS: {reason or 'failed'}"
    if unresolved := _first(causes, HostUnresolvedError):
        return CallFault.UNREACHABLE, str(unresolved)
    system = _first(causes, OSError)
    if system is not None and system.strerror:
        return CallFault.UNREACHABLE, system.strerror
    return CallFault.UNREACHABLE, "the service hung up, or does not speak HTTP/1.1"


def client_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """The TLS settings: services are verified by public authorities and those in a PEM file.

    Raises OSError if the file cannot be read or holds no certificate.
    """
    context = httpx.create_ssl_context(trust_env=False)
    context.set_alpn_protocols(["http/1.1"])
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    return context


async def call_service(
    caller: ServiceCaller,
    call: Call,
    *,
    agent: str,
    clock: Callable[[], float],
    on_reply: Callable[[Request, Reply], None] | None = None,
) -> Content | Declined:
    """One try of a call: its request, the exchange, its reply. `on_reply` sees the reply first.

    Raises CallError only, whatever the connector holds and the service answers. The log has the
    place of an unforeseen error but not its message, which may quote the service's reply.
    """
    fault, call.status = CallFault.REQUEST, None
    try:
        request = build_request(call, agent=agent, now=clock())
        fault = CallFault.REPLY
        reply = await caller.send(call.company_id, request)
        call.status = reply.status
        if on_reply is not None:
            on_reply(request, reply)
        return read_reply(reply.status, reply.headers, reply.body, now=clock())
    except CallError:
        raise
    except Exception as error:
        kind, place = type(error).__name__, traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        about = {"company": call.company_id, "error": kind, "where": where}
        log.error("call_failed_unforeseen", **about)  # noqa: TRY400
        raise CallError(fault, f"an unforeseen error ({kind})", counts=True) from None
