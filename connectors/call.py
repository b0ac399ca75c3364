"""One HTTP exchange with a customer's service. The only file of the product that imports httpx."""

import asyncio
import ssl
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import h11
import httpx
import structlog

from connectors.connection import HttpConnection, RawReply, RawRequest
from connectors.connection_pool import ConnectionPool, PoolKey
from connectors.egress import EgressGuard
from connectors.errors import (
    CallError,
    HostUnresolvedError,
    PeerError,
    ReplyLimitError,
    UrlForbiddenError,
)
from connectors.model import Call, CallFault, Content, Declined
from connectors.reply import read_reply
from connectors.reply_budget import ParserPacer, ReplyBudget
from connectors.request import Request, build_request
from connectors.resolver import resolving_company

log = structlog.get_logger(__name__)

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
    """The limits of one call.

    `connect` (look-up, TCP and TLS) and `call` (the whole call) are in seconds. A reply may have
    `reply_bytes` of body, `overhead_bytes` besides on the wire, and take `reply_steps` to parse.
    """

    connect: float = 1.0
    call: float = 3.0
    reply_bytes: int = 65_536
    overhead_bytes: int = 81_920
    reply_steps: int = 1000


class ServiceCaller:
    """Makes calls: guarded, bounded in time and size, without redirects. The owner closes it.

    It uses no HTTP client. So there are no cookies, no proxies or credentials from the environment,
    and no log lines with a url.
    """

    def __init__(
        self, *, egress: EgressGuard, ssl_context: ssl.SSLContext, limits: CallLimits
    ) -> None:
        self._egress = egress
        self._limits = limits
        self._pool = ConnectionPool(egress=egress, ssl_context=ssl_context)
        self._pacer = ParserPacer()

    async def send(self, company_id: int, request: Request) -> Reply:
        """Send one request. Raises CallError."""
        resolving_company.set(company_id)
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
        self._pool.close_expired()

    async def close(self) -> None:
        self._pool.close()

    async def _exchange(self, company_id: int, request: Request) -> RawReply:
        """Use an idle connection, else a new one.

        The service may have closed the idle connection in this moment: then the request is sent
        once more over a new one. The service recognises the repeat by its idempotency-key.
        """
        target = _target(request.url)
        key = PoolKey(company_id, target.scheme, target.host, target.port)
        message = _message(target, request)
        limits = self._limits
        budget = self._budget(company_id, limits.reply_bytes + limits.overhead_bytes)
        idle = self._pool.take_idle(key)
        if idle is not None:
            try:
                return await self._exchange_over(idle, key, message, budget)
            except (PeerError, ConnectionError):
                pass
        handshake = self._budget(company_id, _HANDSHAKE_BYTES)
        fresh = await self._pool.connect(key, seconds=limits.connect, budget=handshake)
        return await self._exchange_over(fresh, key, message, budget)

    async def _exchange_over(
        self, connection: HttpConnection, key: PoolKey, message: RawRequest, budget: ReplyBudget
    ) -> RawReply:
        try:
            reply = await connection.exchange(
                message, budget=budget, body_bytes=self._limits.reply_bytes
            )
        except BaseException:
            connection.close()
            raise
        self._pool.release(key, connection)
        return reply

    def _budget(self, company_id: int, wire_bytes: int) -> ReplyBudget:
        return ReplyBudget(
            wire_bytes=wire_bytes,
            steps=self._limits.reply_steps,
            pacer=self._pacer,
            company_id=company_id,
        )


class _Target(NamedTuple):
    """Where a url leads to: `netloc` and `path` as they are sent."""

    scheme: str
    host: str
    port: int
    netloc: bytes
    path: bytes


@lru_cache(maxsize=1024)
def _target(url: str) -> _Target:
    """Raises httpx.InvalidURL. Most calls of a connector have the same url."""
    parsed = httpx.URL(url)
    port = parsed.port or _DEFAULT_PORTS[parsed.scheme]
    host = parsed.raw_host.decode("ascii")
    return _Target(parsed.scheme, host, port, parsed.netloc, parsed.raw_path)


def _message(target: _Target, request: Request) -> RawRequest:
    headers = [(b"host", target.netloc), *request.headers]
    if request.body:
        headers.append((b"content-length", b"%d" % len(request.body)))
    return RawRequest(method=request.method, target=target.path, headers=headers, body=request.body)


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
    """The TLS settings: services are verified by public authorities and those in a PEM file.

    Raises OSError if the file cannot be read or holds no certificate.
    """
    context = httpx.create_ssl_context(trust_env=False)
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    return context


async def call_service(
    caller: ServiceCaller,
    call: Call,
    *,
    agent: str,
    clock: Callable[[], float],
    on_reply: Callable[[Request, Reply], None],
) -> Content | Declined:
    """One try of a call: its request, the exchange, its reply. `on_reply` sees the reply first.

    Raises CallError only, whatever the connector holds and the service answers.
    """
    try:
        request = build_request(call, agent=agent, now=clock())
    except Exception as error:
        raise _unforeseen(call, error, CallFault.REQUEST, "no valid request") from None
    try:
        reply = await caller.send(call.company_id, request)
        on_reply(request, reply)
        return read_reply(reply.status, reply.headers, reply.body, now=clock())
    except CallError:
        raise
    except Exception as error:
        detail = "an answer that cannot be used"
        raise _unforeseen(call, error, CallFault.REPLY, detail) from None


def _unforeseen(call: Call, error: Exception, fault: CallFault, detail: str) -> CallError:
    """The error that fails this one call.

    The log has the place of the error but not its message, which may quote the service's reply.
    """
    kind = type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    log.error("call_failed_unforeseen", company=call.company_id, error=kind, where=where)
    return CallError(fault, f"{detail} ({kind})", counts=True)
