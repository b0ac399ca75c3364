"""Calls over real sockets: limits, addresses, odd replies, kept connections."""

import asyncio
import gzip
import json
import ssl
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import trustme

from connectors.client import client_context
from connectors.egress import EgressGuard
from connectors.model import CallFault, Content
from tests.connectors.calls import Names, call_once, caller, egress, result_of
from tests.connectors.services import BURNING, CHUNKED, INTERIM, head
from tests.servers.http_service import (
    CONTENT,
    Answer,
    HttpService,
    content,
    hanging,
    replying,
    serving,
    writing,
)

PUBLIC = "93.184.216.34"


@pytest.mark.parametrize(("size", "fits"), [(0, True), (65_536, True), (65_537, False)])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_reply_is_read_up_to_its_limit(size: int, fits: bool, chunked: bool) -> None:
    whole = b"x" * size
    pieces = [b"%x\r\n%b\r\n" % (len(p), p) for p in (whole[:40_000], whole[40_000:]) if p]
    answer = writing(CHUNKED, *pieces, b"0\r\n\r\n") if chunked else replying(200, whole)
    async with serving(answer) as service, caller() as one:
        if fits:
            assert await call_once(one, service.url()) == whole
        else:
            assert await result_of(one, service.url()) is CallFault.REPLY_TOO_LARGE


@pytest.mark.parametrize(
    "answer",
    [
        hanging,
        writing(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx", close=False),
        writing(*[b"HTTP/1.1 100 Continue\r\n\r\n"] * 99, pause=0.02),
    ],
)
async def test_the_whole_call_has_a_deadline(answer: Any) -> None:
    async with serving(answer) as service, caller(connect=0.3, deadline=0.3) as one:
        begin = asyncio.get_running_loop().time()
        assert await result_of(one, service.url()) is CallFault.TIMEOUT
        assert asyncio.get_running_loop().time() - begin < 10.0


async def test_no_proxies_cookies_and_redirects(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(content()) as other, serving(replying(200)) as service, caller() as one:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, other.url())
        service.answer = replying(307, {}, set_cookie="a=b; path=/", location=other.url())
        await call_once(one, service.url())
        await call_once(one, service.url())
        assert (len(service.received), len(other.received)) == (2, 0)
        assert "cookie" not in service.received[1].headers


class Tls:
    """An authority, and servers with certificates of it."""

    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        self.ca_file = directory / "authority.pem"
        self.authority.cert_pem.write_to_path(str(self.ca_file))

    def server(self, name: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.authority.issue_cert(name).configure_cert(context)
        return context


async def test_tls_is_verified_for_the_name_and_connects_to_the_checked_address(
    tmp_path: Path,
) -> None:
    tls, seen = Tls(tmp_path), list[str | None]()
    context = tls.server("shop.example")
    context.sni_callback = lambda _socket, name, _context: seen.append(name)
    resolver = Names(lambda: ["127.0.0.1"])
    async with (
        serving(content(), tls=context) as service,
        caller(egress(resolver), ssl_context=client_context(tls.ca_file)) as one,
    ):
        assert b"hello" in await call_once(one, service.url("/x", host="shop.example"))
        assert b"hello" in await call_once(one, service.url("/y", host="shop.example"))
        assert service.received[0].headers["host"] == f"shop.example:{service.port}"
        assert (seen, service.connections) == (["shop.example"], 1)


@pytest.mark.parametrize("known", [True, False])
async def test_a_certificate_for_another_name_or_of_a_stranger(tmp_path: Path, known: bool) -> None:
    tls = Tls(tmp_path)
    context = client_context(tls.ca_file if known else None)
    name = "other.example" if known else "localhost"
    async with (
        serving(content(), tls=tls.server(name)) as service,
        caller(ssl_context=context) as one,
    ):
        assert await result_of(one, service.url(host="localhost")) is CallFault.TLS
        assert service.received == []


@pytest.mark.parametrize("turn", [1, 2, 3])
async def test_a_name_that_turns_to_loopback_reaches_nothing(
    turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Good when the connector is saved, and for a while; then, at any later look-up, inside.

    127.0.0.2 stands for the public internet: it alone is open.
    """
    monkeypatch.setattr("connectors.client._CACHED_NAMES_SECONDS", 0)
    answers = iter([("127.0.0.2",)] * turn + [("127.0.0.1",)] * 99)
    resolver = Names(lambda: next(answers))
    guard = EgressGuard(allow_networks=[ip_network("127.0.0.2/32")], resolver=resolver)
    hanging_up = writing(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{}")
    async with serving(hanging_up) as inside:
        outside = HttpService(hanging_up)
        async with outside.running(host="127.0.0.2", port=inside.port), caller(guard) as one:
            url = inside.url(host="rebinding.example")
            await guard.check(url)  # it is saved
            results = [await result_of(one, url) for _ in range(4)]
        assert CallFault.FORBIDDEN in results
        assert (inside.connections, inside.received) == (0, [])
        assert len(outside.received) == results.count(CallFault.REPLY) == turn - 1


@pytest.mark.parametrize(
    "url",
    [
        "http://127.1:{port}/",
        "http://2130706433:{port}/",
        "http://0x7f000001:{port}/",
        "http://0177.0.0.1:{port}/",
        "http://\uff11\uff12\uff17.0.0.1:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://[::1]:{port}/",
        "http://127.0.0.1.:{port}/",
        "http://public.example@127.0.0.1:{port}/",
        "http://127.0.0.1:{port}#@public.example/",
        "http://0:{port}/",
    ],
)
async def test_an_address_in_the_url_is_checked_as_the_client_reads_it(url: str) -> None:
    """(The client resolves names only, so it asks the guard about such hosts itself.)"""
    async with serving(content()) as inside, caller(EgressGuard()) as one:
        one.egress.check_url = lambda _url: None  # type: ignore[assignment]
        assert isinstance(await result_of(one, url.format(port=inside.port)), CallFault)
        assert inside.connections == 0


TOO_LARGE, REPLY, STATUS = "connector_reply_too_large", "connector_reply", "connector_status"
UNREACHABLE, TIMEOUT = "connector_unreachable", "connector_timeout"
GOOD_BODY = json.dumps(CONTENT).encode()
LENGTH = b"content-length: %d" % len(GOOD_BODY)


def ok(raw: bytes) -> Answer:
    return replying(200, raw)


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> Answer:
    return writing(CHUNKED, b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks), end)


ODD: dict[str, tuple[Answer, str]] = {
    "one-byte chunks": (BURNING["chunks"], TOO_LARGE),
    "1,001 chunks": (chunked(*[b" "] * 1000, GOOD_BODY), TOO_LARGE),
    "interim replies": (writing(INTERIM * 6000), TOO_LARGE),
    "header lines without an end": (BURNING["heads"], TOO_LARGE),
    "one long header": (head(b"a: " + b"b" * 300_000), TOO_LARGE),
    "long chunk extensions": (
        writing(CHUNKED, *[b"1;" + b"e" * 10_000 + b"\r\nx\r\n"] * 60, b"0\r\n\r\n"),
        TOO_LARGE,
    ),
    "trailers": (chunked(GOOD_BODY, end=b"0\r\n" + b"a: b\r\n" * 60_000), TOO_LARGE),
    "a chunk of 2^80": (writing(CHUNKED, b"f" * 20 + b"\r\nx"), UNREACHABLE),
    "two lengths": (head(b"content-length: 1", b"content-length: 2"), UNREACHABLE),
    "half a body": (head(b"content-length: 9", body=b"x"), UNREACHABLE),
    "no HTTP": (writing(b"\x16\x03\x01"), UNREACHABLE),
    "nothing": (writing(b""), UNREACHABLE),
    "two kinds of framing": (
        head(b"content-length: 2", b"transfer-encoding: chunked", body=b"0\r\n\r\n"),
        UNREACHABLE,
    ),
    "status 99999": (writing(b"HTTP/1.1 99999 x\r\n\r\n"), UNREACHABLE),
    "another protocol": (
        writing(b"HTTP/1.1 101 x\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\nx"),
        STATUS,
    ),
    "nested JSON": (ok(b"[" * 60_000), REPLY),
    "a gzip bomb": (
        replying(200, gzip.compress(b" " * 10_000_000), content_encoding="gzip"),
        REPLY,
    ),
}
FINE: dict[str, Answer] = {
    "900 chunks": chunked(*[b" "] * 900, GOOD_BODY),
    "some interim replies": writing(
        INTERIM * 20, b"HTTP/1.1 200 OK\r\n", LENGTH, b"\r\n\r\n", GOOD_BODY
    ),
    "HTTP/1.0 until it hangs up": writing(b"HTTP/1.0 200 OK\r\n\r\n" + GOOD_BODY),
    "trailers, few": chunked(GOOD_BODY, end=b"0\r\na: b\r\n\r\n"),
    "a word over": head(LENGTH, body=GOOD_BODY + b"HTTP/1.1 200 OK\r\n\r\n"),
    "64 KiB in lines": ok(GOOD_BODY[:-1] + b"\n" * (65_536 - len(GOOD_BODY)) + b"}"),
}


@pytest.mark.parametrize("name", ODD)
async def test_an_odd_answer_is_a_failed_call(name: str) -> None:
    answer, fault = ODD[name]
    async with serving(answer) as service, caller(deadline=2.0) as one:
        assert await result_of(one, service.url()) == fault
        service.answer = content()
        assert isinstance(await result_of(one, service.url()), Content)


@pytest.mark.parametrize("name", FINE)
async def test_unusual_replies_that_http_allows(name: str) -> None:
    async with serving(FINE[name]) as service, caller(deadline=2.0) as one:
        assert isinstance(await result_of(one, service.url()), Content)
        service.answer = content()
        assert isinstance(await result_of(one, service.url()), Content)


async def test_an_extra_reply_does_not_answer_the_next_call() -> None:
    """A second reply behind the first, on a connection that is kept."""
    ahead = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    both = writing(b"HTTP/1.1 200 OK\r\n", LENGTH, b"\r\n\r\n", GOOD_BODY + ahead, close=False)
    async with serving(both) as service, caller() as one:
        for _ in range(3):
            assert isinstance(await result_of(one, service.url()), Content)
        assert (len(service.received), service.connections) == (3, 3)
