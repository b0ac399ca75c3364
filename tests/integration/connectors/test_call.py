"""Single calls over real sockets: limits, deadlines, broken replies, kept connections."""

import asyncio
import gzip
from typing import Any

import pytest

from connectors.call import CallLimits, client_context
from connectors.connection_pool import ConnectionPool
from connectors.model import CallFault
from connectors.request import build_request
from tests.integration.connectors.scheduling import call_to, caller, egress
from tests.integration.connectors.single_calls import call_once, fault_of
from tests.servers.http_service import (
    HttpService,
    ReceivedRequest,
    content,
    hanging,
    replying,
    serving,
    writing,
)
from tests.servers.waiting import eventually

PUBLIC = "93.184.216.34"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("size", "fits"), [(0, True), (1000, True), (65_536, True), (65_537, False)]
)
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_reply_is_read_up_to_its_limit(size: int, fits: bool, chunked: bool) -> None:
    whole = b"x" * size
    pieces = [b"%x\r\n%b\r\n" % (len(p), p) for p in (whole[:40_000], whole[40_000:]) if p]
    answer = writing(CHUNKED, *pieces, b"0\r\n\r\n") if chunked else replying(200, whole)
    async with serving(answer) as service, caller() as one:
        if fits:
            assert await call_once(one, service.url()) == whole
        else:
            assert await fault_of(one, service.url()) is CallFault.REPLY_TOO_LARGE


async def test_a_small_reply_that_unpacks_to_a_large_one_is_not_unpacked() -> None:
    packed = gzip.compress(b"x" * 10_000_000)
    async with serving(replying(200, packed, content_encoding="gzip")) as service, caller() as one:
        assert await call_once(one, service.url()) == packed
        assert service.received[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "answer",
    [
        hanging,
        writing(b"HTTP/1.1 200 OK\r\n", close=False),
        writing(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", close=False),
        writing(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
            *[b"1\r\nx\r\n"] * 99,
            pause=0.02,
        ),
        writing(*[b"HTTP/1.1 100 Continue\r\n\r\n"] * 99, pause=0.02),
        writing(b"HTTP/1.1 200 OK\r\n", *[b"x: y\r\n"] * 99, pause=0.02),
    ],
)
async def test_the_whole_call_has_a_deadline(answer: Any) -> None:
    limits = CallLimits(connect=0.3, call=0.3)
    async with serving(answer) as service, caller(limits=limits) as one:
        begin = asyncio.get_running_loop().time()
        assert await fault_of(one, service.url()) is CallFault.TIMEOUT
        assert asyncio.get_running_loop().time() - begin < 1.0


@pytest.mark.parametrize(
    "answer",
    [
        writing(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx"),
        writing(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nx"),
        writing(b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 200_000),
        writing(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxy"),
        writing(b"HTTP/2 200\r\n\r\n"),
        writing(b"\x16\x03\x01"),
        writing(b""),
    ],
)
async def test_replies_that_are_not_http_or_incomplete(answer: Any) -> None:
    async with serving(answer) as service, caller() as one:
        assert await fault_of(one, service.url()) is CallFault.UNREACHABLE


async def test_nobody_listens() -> None:
    async with serving(content()) as service:
        url = service.url()
    async with caller() as one:
        assert await fault_of(one, url) is CallFault.UNREACHABLE


async def test_a_reply_before_the_request_was_read_counts() -> None:
    refused = writing(b"HTTP/1.1 429 Slow\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n")
    async with serving(refused) as service, caller() as one:
        call = call_to(service.url())
        reply = await one.send(1, build_request(call, agent="test", now=0.0))
        assert (reply.status, reply.headers["Retry-After"]) == (429, "1")


async def test_a_connection_is_kept_for_the_same_company() -> None:
    async with serving(content()) as service, caller() as one:
        for company in (1, 1, 2, 1, 2):
            await call_once(one, service.url(), company)
        assert (len(service.received), service.connections) == (5, 2)


async def test_a_connection_that_was_hung_up_meanwhile_is_no_failure() -> None:
    closing = writing(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
    async with serving(closing) as service, caller() as one:
        for _ in range(5):
            assert await call_once(one, service.url()) == b"{}"
        assert service.connections == 5


async def test_a_reused_connection_that_closes_during_the_request_is_replaced() -> None:
    async def once_a_connection(_request: ReceivedRequest, writer: Any) -> None:
        if writer in served:
            writer.transport.abort()
            return
        served.add(writer)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    served: set[Any] = set()
    async with serving(once_a_connection) as service, caller() as one:
        for _ in range(4):
            assert await call_once(one, service.url()) == b"{}"
        assert (service.connections, len(service.received)) == (4, 7)


async def test_cookies_are_not_kept() -> None:
    async with serving(replying(200, {}, set_cookie="a=b; path=/")) as service, caller() as one:
        await call_once(one, service.url())
        await call_once(one, service.url())
        assert all("cookie" not in received.headers for received in service.received)


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(content()) as proxy, serving(content()) as service, caller() as one:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url())
        await call_once(one, service.url())
        assert (len(service.received), len(proxy.received)) == (1, 0)


async def test_idle_connections_are_closed_in_time() -> None:
    async with serving(content()) as service, caller() as one:
        one._pool = kept = ConnectionPool(
            egress=egress(), ssl_context=client_context(), idle_seconds=0.05, most_idle=2
        )
        for company in range(4):
            await call_once(one, service.url(), company)
        assert len(kept._by_age) == 2

        async def none_left() -> bool:
            await one.close_expired()
            return not kept._by_age

        await eventually(none_left)
        assert await _open_connections(service) == 0


async def _open_connections(service: HttpService) -> int:
    await eventually(lambda: not service._serving)
    return len(service._serving)
