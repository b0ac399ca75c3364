"""One HTTP exchange with a customer's service. The only file of the project that imports httpx."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import httpcore
import httpx

from connectors.budget import ParserTurns, ReplyBudget, ReplyLimitError
from connectors.connection import BoundedConnection
from connectors.connections import Connections
from connectors.egress import Egress, ForbiddenError, UnresolvedError
from connectors.model import CallError, Fault
from connectors.network import GuardedBackend
from connectors.request import Request

_HANDSHAKE_BYTES = 128 * 1024  # a service's certificate, with all that lie between


@dataclass(frozen=True, slots=True)
class Reply:
    """A complete reply. Header names are looked up in any case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """Seconds to connect (look-up, TCP and TLS), seconds for the whole call; of a reply the bytes
    of its body, what may come with it over the wire, and the steps of each kind of parsing."""

    connect: float = 1.0
    call: float = 3.0
    reply_bytes: int = 65_536
    overhead_bytes: int = 81_920
    reply_steps: int = 1000


class Caller:
    """Makes calls: guarded, bounded in time and size, without redirects.

    There is an httpx transport here and no httpx client above it: so no cookies, no proxies or
    credentials from the environment, and no log line with a url. Connections are never shared
    between companies. `close` it.
    """

    def __init__(self, *, egress: Egress, ssl_context: ssl.SSLContext, limits: CallLimits) -> None:
        self._egress = egress
        self._limits = limits
        self._connections = Connections(backend=GuardedBackend(egress), ssl_context=ssl_context)
        self._turns = ParserTurns()

    async def send(self, company_id: int, request: Request) -> Reply:
        """The reply to one request. Raises CallError."""
        try:
            async with asyncio.timeout(self._limits.call):
                await self._egress.check(request.url)
                return await self._exchange(company_id, request)
        except ForbiddenError as error:
            raise CallError(Fault.FORBIDDEN, str(error)) from None
        except ReplyLimitError as error:
            raise CallError(Fault.REPLY_TOO_LARGE, str(error), counts=True) from None
        except (UnresolvedError, OSError) as error:
            fault, detail = _network_fault(error)
            raise CallError(fault, detail, retriable=True, counts=True) from None
        except httpcore.RemoteProtocolError:
            detail = "the service hung up, or does not speak HTTP/1.1"
            raise CallError(Fault.UNREACHABLE, detail, retriable=True, counts=True) from None
        except (httpcore.LocalProtocolError, httpx.InvalidURL, ValueError):
            raise CallError(Fault.REQUEST, "url or parameters make no valid request") from None

    async def close_expired(self) -> None:
        """Close connections that have been idle for too long."""
        await self._connections.close_expired()

    async def close(self) -> None:
        """Close all connections that are idle."""
        await self._connections.close()

    async def _exchange(self, company_id: int, request: Request) -> Reply:
        transport = _Transport(company_id, self._connections, self._limits, self._turns)
        response = await transport.handle_async_request(
            httpx.Request(
                request.method,
                request.url,
                headers=request.headers,
                content=request.body or None,
            )
        )
        try:
            body = await self._read(response)
        finally:
            await response.aclose()
        return Reply(response.status_code, response.headers, body)

    async def _read(self, response: httpx.Response) -> bytes:
        """The body as it came over the wire, up to the limit. Raises ReplyLimitError."""
        parts, size = [], 0
        async with aclosing(_parts(response)) as arriving:
            async for part in arriving:
                size += len(part)
                if size > self._limits.reply_bytes:
                    raise ReplyLimitError(f"a reply of more than {self._limits.reply_bytes} bytes")
                parts.append(part)
        return b"".join(parts)


def _parts(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101  # _Body is one
    return cast("AsyncGenerator[bytes, None]", aiter(response.stream))


def _network_fault(error: UnresolvedError | OSError) -> tuple[Fault, str]:
    if isinstance(error, TimeoutError):
        return Fault.TIMEOUT, "no reply in time"
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "verify_message", None) or error.reason or "failed"
        return Fault.TLS, f"TLS: {reason}"
    if isinstance(error, UnresolvedError):
        return Fault.UNREACHABLE, str(error)
    return Fault.UNREACHABLE, error.strerror or "the connection failed"


class _Transport(httpx.AsyncBaseTransport):
    """An httpx transport for one call, over connections that are kept for the company."""

    def __init__(
        self, company_id: int, connections: Connections, limits: CallLimits, turns: ParserTurns
    ) -> None:
        self._company_id = company_id
        self._connections = connections
        self._limits = limits
        self._turns = turns

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send on an idle connection, else on a new one.

        An idle one may have been hung up just now: then, once, on a new one. The service knows a
        repeat by its idempotency-key.
        """
        url = request.url
        outgoing = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        origin = outgoing.url.origin
        budget = self._budget(self._limits.reply_bytes + self._limits.overhead_bytes)
        connection = await self._connections.take_idle(self._company_id, origin)
        if connection is not None:
            try:
                return await self._send(connection, outgoing, budget)
            except (httpcore.RemoteProtocolError, ConnectionError):
                await connection.aclose()
        connection = await self._connections.connect(
            origin, seconds=self._limits.connect, budget=self._budget(_HANDSHAKE_BYTES)
        )
        return await self._send(connection, outgoing, budget)

    async def _send(
        self, connection: BoundedConnection, request: httpcore.Request, budget: ReplyBudget
    ) -> httpx.Response:
        connection.allow(budget)
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            await connection.aclose()
            raise
        body = _Body(self._company_id, self._connections, connection, request, response)
        return httpx.Response(response.status, headers=response.headers, stream=body)

    def _budget(self, wire_bytes: int) -> ReplyBudget:
        return ReplyBudget(
            wire_bytes=wire_bytes,
            steps=self._limits.reply_steps,
            turns=self._turns,
            company_id=self._company_id,
        )


class _Body(httpx.AsyncByteStream):
    """The body of a reply; the connection goes back when it is closed."""

    def __init__(
        self,
        company_id: int,
        connections: Connections,
        connection: BoundedConnection,
        request: httpcore.Request,
        response: httpcore.Response,
    ) -> None:
        self._company_id = company_id
        self._connections = connections
        self._connection = connection
        self._origin = request.url.origin
        self._response = response

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._response.aiter_stream()

    async def aclose(self) -> None:
        """An exchange that is not complete closes its connection."""
        await self._response.aclose()
        await self._connections.give_back(self._company_id, self._origin, self._connection)


def client_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """Verifies servers by the well-known authorities, and by those of a PEM file besides.

    Raises OSError when the file cannot be read or holds no certificate.
    """
    context = httpx.create_ssl_context(trust_env=False)
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    return context
