"""Each odd answer is a failed call of its own kind, and the scheduler goes on."""

import asyncio
import gzip
import json
import socket
import ssl
import struct
from typing import Any

import pytest
import trustme

from connectors.call import CallLimits, client_context
from connectors.egress import EgressGuard
from connectors.errors import EgressError
from connectors.model import CallResult, Content, Declined, Failed
from connectors.scheduled_call import RetryPolicy
from tests.hostile.connectors.services import BURNING, CHUNKED, INTERIM, head
from tests.integration.connectors.scheduling import RunningScheduler, call_to, scheduling
from tests.servers.http_service import (
    CONTENT,
    Answer,
    ReceivedRequest,
    content,
    replying,
    serving,
    writing,
)
from tests.servers.waiting import eventually

ONCE = RetryPolicy(tries=1)
LIMITS = CallLimits(connect=1.0, call=2.0)
TOO_LARGE, REPLY, STATUS = "connector_reply_too_large", "connector_reply", "connector_status"
UNREACHABLE, TIMEOUT = "connector_unreachable", "connector_timeout"
GOOD_BODY = json.dumps(CONTENT).encode()
LENGTH = b"content-length: %d" % len(GOOD_BODY)


def ok(raw: bytes) -> Answer:
    return replying(200, raw)


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> Answer:
    return writing(CHUNKED, b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks), end)


def text(**fields: str) -> Answer:
    """Content with JSON's own escapes as they are given."""
    inside = ", ".join(f'"{name}": "{value}"' for name, value in fields.items())
    return ok(f'{{"format": "html", "html": "x", {inside}}}'.encode())


ODD: dict[str, tuple[Answer, str]] = {
    "one-byte chunks": (BURNING["chunks"], TOO_LARGE),
    "interim replies": (writing(INTERIM * 5000), TOO_LARGE),
    "header lines": (head(*[b"a: b"] * 2000), TOO_LARGE),
    "header lines without an end": (BURNING["heads"], TOO_LARGE),
    "folded lines": (head(b"a: b", *[b" c"] * 2000), TOO_LARGE),
    "one long header": (head(b"a: " + b"b" * 300_000), UNREACHABLE),
    "long chunk extensions": (
        writing(CHUNKED, *[b"1;" + b"e" * 10_000 + b"\r\nx\r\n"] * 60, b"0\r\n\r\n"),
        TOO_LARGE,
    ),
    "a chunk extension without an end": (writing(CHUNKED, b"1;" + b"e" * 300_000), UNREACHABLE),
    "trailers": (chunked(GOOD_BODY, end=b"0\r\n" + b"a: b\r\n" * 60_000), UNREACHABLE),
    "a chunk of 2^80": (writing(CHUNKED, b"f" * 20 + b"\r\nx"), UNREACHABLE),
    "negative chunk": (writing(CHUNKED, b"-1\r\nx"), UNREACHABLE),
    "content-length of 5,000 digits": (head(b"content-length: " + b"9" * 5000), UNREACHABLE),
    "content-length of 20 digits": (head(b"content-length: " + b"9" * 20), UNREACHABLE),
    "negative content-length": (head(b"content-length: -1"), UNREACHABLE),
    "content-length too small": (head(b"content-length: 3", body=GOOD_BODY), REPLY),
    "two kinds of framing": (
        head(b"content-length: 2", b"transfer-encoding: chunked", body=b"0\r\n\r\n"),
        REPLY,
    ),
    "gzip as transfer-encoding": (head(b"transfer-encoding: gzip, chunked"), UNREACHABLE),
    "status 000": (writing(b"HTTP/1.1 000 x\r\n\r\n"), UNREACHABLE),
    "status 99999": (writing(b"HTTP/1.1 99999 x\r\n\r\n"), UNREACHABLE),
    "status 999": (writing(b"HTTP/1.1 999 x\r\ncontent-length: 0\r\n\r\n"), STATUS),
    "another protocol": (
        writing(b"HTTP/1.1 101 x\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\nx"),
        UNREACHABLE,
    ),
    "redirect to a file": (replying(302, location="file:///etc/passwd"), STATUS),
    "a gzip bomb": (
        replying(200, gzip.compress(b" " * 10_000_000), content_encoding="gzip"),
        REPLY,
    ),
    "nested JSON": (ok(b"[" * 60_000), REPLY),
    "nested JSON in a field nobody knows": (ok(b'{"x": ' + b"[" * 60_000), REPLY),
    "a number of 60,000 digits": (ok(b'{"format": ' + b"9" * 60_000 + b"}"), REPLY),
    "NaN": (ok(b'{"format": NaN}'), REPLY),
    "half a surrogate": (text(title=r"\ud800"), REPLY),
    "the other half": (text(push=r"\udc00"), REPLY),
    "a surrogate in UTF-8": (ok(b'{"format": "html", "html": "\xed\xa0\x80"}'), REPLY),
    "UTF-16": (ok(json.dumps(CONTENT).encode("utf-16")), REPLY),
    "a byte order mark": (ok(b"\xef\xbb\xbf" + GOOD_BODY), REPLY),
    "two documents": (ok(GOOD_BODY + GOOD_BODY), REPLY),
    "send as a number": (ok(b'{"send": 0}'), REPLY),
    "blank content": (ok(b'{"format": "html", "html": " \\n\\u00a0 "}'), REPLY),
}
FINE: dict[str, Answer] = {
    "a title of 60 kB": text(title="t" * 60_000),
    "NUL in a title": text(title=r"\u0000"),
    "control characters": text(push=r"\u001b[2J"),
    "keys given twice": ok(b'{"format": "url", "format": "html", "html": "a", "html": "b"}'),
    "900 chunks": chunked(*[b" "] * 900, GOOD_BODY),
    "some interim replies": writing(
        INTERIM * 20, b"HTTP/1.1 200 OK\r\n", LENGTH, b"\r\n\r\n", GOOD_BODY
    ),
    "100 header lines": head(*[b"a: b"] * 100, LENGTH, body=GOOD_BODY),
    "HTTP/1.0 until it hangs up": writing(b"HTTP/1.0 200 OK\r\n\r\n" + GOOD_BODY),
    "trailers, few": chunked(GOOD_BODY, end=b"0\r\na: b\r\n\r\n"),
    "a word over": head(LENGTH, body=GOOD_BODY + b"HTTP/1.1 200 OK\r\n\r\n"),
    "64 KiB in lines": ok(GOOD_BODY[:-1] + b"\n" * (65_536 - len(GOOD_BODY)) + b"}"),
}


async def result_of(one: RunningScheduler, url: str) -> CallResult:
    call = call_to(url)
    one.submit(call)
    await eventually(lambda: call.id in one.results, deadline=30, what="its result")
    return one.results[call.id]


async def assert_continues(one: RunningScheduler, service: Any) -> None:
    service.answer = content()
    assert isinstance(await result_of(one, service.url()), Content)
    assert one.scheduler._dispatcher._queue.free == 512
    assert not one.running.done()


@pytest.mark.parametrize("name", ODD)
async def test_an_odd_answer_is_a_failed_call(name: str) -> None:
    answer, fault = ODD[name]
    async with (
        serving(answer) as service,
        scheduling(retries=ONCE, call_limits=LIMITS) as one,
    ):
        result = await result_of(one, service.url())
        assert isinstance(result, Failed), result
        assert result.fault.value == fault, result
        await assert_continues(one, service)


@pytest.mark.parametrize("name", FINE)
async def test_unusual_replies_that_http_allows(name: str) -> None:
    async with (
        serving(FINE[name]) as service,
        scheduling(retries=ONCE, call_limits=LIMITS) as one,
    ):
        assert isinstance(await result_of(one, service.url()), Content)
        await assert_continues(one, service)


async def test_send_false_needs_no_content() -> None:
    async with (
        serving(ok(b'{"send": false, "format": "html"}')) as service,
        scheduling() as one,
    ):
        assert isinstance(await result_of(one, service.url()), Declined)


async def test_an_aborted_reply_counts_for_the_breaker() -> None:
    async with serving(BURNING["chunks"]) as service, scheduling(retries=ONCE) as one:
        for _ in range(10):
            one.submit(call_to(service.url()))
        await eventually(lambda: one.breakers.is_open(1), what="the breaker opens")


async def test_an_extra_reply_does_not_answer_the_next_call() -> None:
    """A second reply behind the first, on a connection that is kept."""
    ahead = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    async with serving(head(LENGTH, body=GOOD_BODY + ahead)) as service, scheduling() as one:
        service.answer = writing(
            b"HTTP/1.1 200 OK\r\n", LENGTH, b"\r\n\r\n", GOOD_BODY + ahead, close=False
        )
        for _ in range(3):
            assert isinstance(await result_of(one, service.url()), Content)
        assert (len(service.received), service.connections) == (3, 3)


def _server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    return context


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (BURNING["chunks"], TOO_LARGE),
        (BURNING["interim"], TOO_LARGE),
        (BURNING["heads"], TOO_LARGE),
    ],
)
async def test_under_tls_too(answer: Answer, fault: str) -> None:
    authority = trustme.CA()
    context = client_context()
    authority.configure_trust(context)
    async with (
        serving(answer, tls=_server_context(authority)) as service,
        scheduling(retries=ONCE, ssl_context=context) as one,
    ):
        result = await result_of(one, service.url(host="localhost"))
        assert isinstance(result, Failed)
        assert result.fault.value == fault
        service.answer = content()
        assert isinstance(await result_of(one, service.url(host="localhost")), Content)


async def test_tls_records_of_one_byte_are_counted() -> None:
    async def dribbling(_request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n")
        for _ in range(60_000):
            writer.write(b"x")  # a record of its own
        await writer.drain()

    authority = trustme.CA()
    context = client_context()
    authority.configure_trust(context)
    async with (
        serving(dribbling, tls=_server_context(authority)) as service,
        scheduling(retries=ONCE, ssl_context=context, call_limits=CallLimits()) as one,
    ):
        result = await result_of(one, service.url(host="localhost"))
        assert isinstance(result, Failed)
        assert result.fault.value in (TOO_LARGE, TIMEOUT)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x03\x40\x00" + b"\x02" * 20_000,  # a handshake message that never ends
        b"\x15\x03\x03\x00\x02\x01\x00" * 5000,  # alerts that warn
        b"\x16\x03\x03\x00\x00" * 5000,  # records with nothing in them
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"",
    ],
)
async def test_a_handshake_that_is_none(sent: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(sent)
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with scheduling(retries=ONCE) as one:
        result = await result_of(one, f"https://127.0.0.1:{port}/")
        assert isinstance(result, Failed)
        assert result.fault.value in ("connector_tls", UNREACHABLE, TIMEOUT)
    server.close()
    await server.wait_closed()


async def test_a_service_that_reads_nothing_and_resets() -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        one = writer.get_extra_info("socket")
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with scheduling(retries=ONCE) as one:
        result = await result_of(one, f"http://127.0.0.1:{port}/")
        assert isinstance(result, Failed)
        assert result.fault.value == UNREACHABLE
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("count", [65, 5000])
async def test_a_name_with_hundreds_of_addresses(count: int) -> None:
    async def resolve(_host: str, _port: int) -> list[str]:
        return [
            f"8.{number // 65536}.{number // 256 % 256}.{number % 256}" for number in range(count)
        ]

    with pytest.raises(EgressError, match="addresses"):
        await EgressGuard(resolve=resolve).check("https://many.example/")


@pytest.mark.parametrize("host", ["x" * 254, "a." * 200 + "example", "xn--" + "a" * 5000])
async def test_a_name_that_is_too_long(host: str) -> None:
    with pytest.raises(EgressError, match="253"):
        await EgressGuard().check(f"https://{host}/")
