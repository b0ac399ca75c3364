"""One HTTP exchange with a customer's service. The only file of the project that imports httpx."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import h11
import httpx

from connectors.budget import ParserTurns, ReplyBudget
from connectors.connection import Connection, Message, RawReply
from connectors.connections import Connections, Origin
from connectors.egress import EgressGuard
from connectors.errors import (
    CallError,
    HostUnresolvedError,
    PeerError,
    ReplyLimitError,
    UrlForbiddenError,
)
from connectors.model import CallFault
from connectors.network import GuardedBackend
from connectors.request import Request
from connectors.resolver import asker

_HANDSHAKE_BYTES = 128 * 1024  # a service's certificate, with all that lie between
_DEFAULT_PORTS = {"http": 80, "https": 443}


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

    No HTTP client stands above the connections: so no cookies, no proxies or credentials from the
    environment, and no log line with a url. Connections are never shared between companies.
    `close` it.
    """

    def __init__(
        self, *, egress: EgressGuard, ssl_context: ssl.SSLContext, limits: CallLimits
    ) -> None:
        self._egress = egress
        self._limits = limits
        self._connections = Connections(backend=GuardedBackend(egress), ssl_context=ssl_context)
        self._turns = ParserTurns()

    async def send(self, company_id: int, request: Request) -> Reply:
        """The reply to one request. Raises CallError."""
        asker.set(company_id)
        try:
            async with asyncio.timeout(self._limits.call):
                await self._egress.check(request.url)
                raw = await self._exchange(company_id, request)
        except UrlForbiddenError as error:
            raise CallError(CallFault.FORBIDDEN, str(error)) from None
        except ReplyLimitError as error:
            raise CallError(CallFault.REPLY_TOO_LARGE, str(error), counts=True) from None
        except (HostUnresolvedError, OSError) as error:
            fault, detail = _network_fault(error)
            raise CallError(fault, detail, retriable=True, counts=True) from None
        except PeerError:
            detail = "the service hung up, or does not speak HTTP/1.1"
            raise CallError(CallFault.UNREACHABLE, detail, retriable=True, counts=True) from None
        except (h11.LocalProtocolError, httpx.InvalidURL, ValueError):
            raise CallError(CallFault.REQUEST, "url or parameters make no valid request") from None
        return Reply(raw.status, httpx.Headers(raw.headers), raw.body)

    async def close_expired(self) -> None:
        """Close connections that have been idle for too long."""
        self._connections.close_expired()

    async def close(self) -> None:
        """Close all connections that are idle."""
        self._connections.close()

    async def _exchange(self, company_id: int, request: Request) -> RawReply:
        """Over an idle connection, else over a new one.

        An idle one may have been hung up just now: then, once, over a new one. The service knows a
        repeat by its idempotency-key.
        """
        url = httpx.URL(request.url)
        port = url.port or _DEFAULT_PORTS[url.scheme]
        origin = Origin(company_id, url.scheme, url.raw_host.decode("ascii"), port)
        message = _message(url, request)
        limits = self._limits
        budget = self._budget(company_id, limits.reply_bytes + limits.overhead_bytes)
        idle = self._connections.take_idle(origin)
        if idle is not None:
            try:
                return await self._over(idle, origin, message, budget)
            except (PeerError, ConnectionError):
                pass
        handshake = self._budget(company_id, _HANDSHAKE_BYTES)
        fresh = await self._connections.connect(origin, seconds=limits.connect, budget=handshake)
        return await self._over(fresh, origin, message, budget)

    async def _over(
        self, connection: Connection, origin: Origin, message: Message, budget: ReplyBudget
    ) -> RawReply:
        try:
            reply = await connection.exchange(
                message, budget=budget, body_bytes=self._limits.reply_bytes
            )
        except BaseException:
            connection.close()
            raise
        self._connections.give_back(origin, connection)
        return reply

    def _budget(self, company_id: int, wire_bytes: int) -> ReplyBudget:
        return ReplyBudget(
            wire_bytes=wire_bytes,
            steps=self._limits.reply_steps,
            turns=self._turns,
            company_id=company_id,
        )


def _message(url: httpx.URL, request: Request) -> Message:
    headers = [(b"host", url.netloc), *request.headers]
    if request.body:
        headers.append((b"content-length", b"%d" % len(request.body)))
    return Message(method=request.method, target=url.raw_path, headers=headers, body=request.body)


def _network_fault(error: HostUnresolvedError | OSError) -> tuple[CallFault, str]:
    if isinstance(error, TimeoutError):
        return CallFault.TIMEOUT, "no reply in time"
    if isinstance(error, ssl.SSLError):
        reason = getattr(error, "verify_message", None) or error.reason or "failed"
        return CallFault.TLS, f"TLS: {reason}"
    if isinstance(error, HostUnresolvedError):
        return CallFault.UNREACHABLE, str(error)
    return CallFault.UNREACHABLE, error.strerror or "the connection failed"


def client_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """Verifies servers by the well-known authorities, and by those of a PEM file besides.

    Raises OSError when the file cannot be read or holds no certificate.
    """
    context = httpx.create_ssl_context(trust_env=False)
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    return context
