"""A connection takes no more than its share, whatever it sends or does not send."""

import asyncio
import time
from typing import Any

import pytest

from tests.hostile.api.conftest import Serve
from tests.hostile.api.sockets import connected, read_until_closed, send_all, status_of
from tests.servers.waiting import eventually

GET = b"GET /%d HTTP/1.1\r\nhost: a\r\n\r\n"


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the path and the length of the body."""
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    body = f"{scope['path']} {size}\n".encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _nothing() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def exchange(port: int, *pieces: bytes) -> bytes:
    """The answer to these bytes, until the connection is closed."""
    async with connected(port) as (reader, writer):
        answer = asyncio.create_task(read_until_closed(reader))
        await send_all(writer, pieces)
        return await answer


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"x: y\r\n" * 99, 200),
        (b"x: y\r\n" * 100, 431),
        (b"x: " + b"y" * 60_000 + b"\r\n", 200),
        (b"x: " + b"y" * 66_000 + b"\r\n", 431),
        ((b"x: " + b"y" * 10_000 + b"\r\n") * 7, 431),
        (b"bad line\r\n", 400),
        (b"content-length: -1\r\n", 400),
        (b"content-length: 99999999999999999999999\r\n", 400),
        (b"content-length: 1\r\ntransfer-encoding: chunked\r\n", 400),
    ],
)
async def test_heads(serve: Serve, head: bytes, status: int):
    async with serve(echo, idle_seconds=0.5) as port:
        answer = await exchange(port, b"GET / HTTP/1.1\r\nhost: a\r\n" + head[:-2] + b"\r\n\r\n")
    assert status_of(answer) == status
    assert status == 200 or b'"status":"error"' in answer


@pytest.mark.parametrize(
    "endless",
    [
        [b"GET / HTTP/1.1\r\nx: ", b"y" * 4000],
        [b"GET /", b"y" * 4000],
        [b"GET / HTTP/1.1\r\n", b"x: y\r\n" * 10],
        [b"\r\n" * 2000, b"\r\n" * 2000],
        [b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n" * 10],
        [b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1;", b"x" * 4000],
        [b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 600],
        [b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n", b"\x81" * 4000],
        [b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n", b"PRI * HTTP/2.0"],
    ],
)
async def test_an_endless_request_is_refused_and_closed(serve: Serve, endless: list[bytes]):
    """The request is read up to the limits, and the connection is closed at once."""
    first, again = endless
    async with serve(echo, message_bytes=100_000) as port, connected(port) as (reader, writer):
        answer = asyncio.create_task(read_until_closed(reader))
        sent = await send_all(writer, [first, *[again] * 50_000])
        await answer
    # What the system holds of a connection goes as well.
    assert sent < 8 * 1024 * 1024


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", 0),
        (GET % 1, 200),
        (b"GET / HT", 408),
        (b"\r\n", 408),
        (GET % 1 + b"GET / HTTP/1.1\r\nx: ", 200),
    ],
)
async def test_a_connection_that_stops_is_closed(serve: Serve, sent: bytes, status: int):
    async with serve(echo, head_seconds=0.6, idle_seconds=0.6) as port:
        started = time.monotonic()
        answer = await exchange(port, sent)
        seconds = time.monotonic() - started
    assert status_of(answer) == status
    assert 0.5 < seconds < 15


async def test_a_head_that_dribbles(serve: Serve):
    """A slow client does not extend the deadline."""
    async with serve(echo, head_seconds=0.8) as port, connected(port) as (reader, writer):
        answer = asyncio.create_task(read_until_closed(reader))
        started = time.monotonic()
        while not answer.done():
            writer.write(b"x")
            await asyncio.sleep(0.05)
            assert time.monotonic() - started < 20
    assert status_of(answer.result()) in (400, 408)


async def test_kept_connections_are_used_again(serve: Serve):
    async with serve(echo) as port, connected(port) as (reader, writer):
        for number in range(30):
            writer.write(GET % number)
            head = await reader.readuntil(b"\r\n\r\n")
            assert status_of(head) == 200
            assert await reader.readline() == b"/%d 0\n" % number


async def test_a_pipeline_is_answered_in_order(serve: Serve):
    count = 2000
    async with serve(echo) as port, connected(port) as (reader, writer):
        sending = asyncio.create_task(
            send_all(
                writer, [b"".join(GET % n for n in range(i, i + 10)) for i in range(0, count, 10)]
            )
        )
        for number in range(count):
            assert status_of(await reader.readuntil(b"\r\n\r\n")) == 200
            assert await reader.readline() == b"/%d 0\n" % number
        await sending


async def test_a_pipeline_is_not_read_ahead(serve: Serve):
    """While one request is answered, the next ones of the pipeline are not parsed."""
    started, proceed = 0, asyncio.Event()

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        nonlocal started
        started += 1
        await receive()
        # As a streamed answer does, which looks for the end of the connection.
        looking = asyncio.create_task(receive())
        await proceed.wait()
        looking.cancel()
        await echo(scope, _nothing, send)

    async with serve(waiting) as port, connected(port) as (_, writer):
        sending = asyncio.create_task(send_all(writer, [GET % 1 * 100] * 20_000))
        await eventually(lambda: started == 1)
        # All of it would be 58 MB; the server and the system hold a part, and the sender waits.
        await asyncio.wait({sending}, timeout=2.0)
        assert (sending.done(), started) == (False, 1)
        proceed.set()
        await eventually(lambda: started > 1)
        sending.cancel()


async def test_the_connection_that_is_idle_longest_is_closed(serve: Serve):
    """Silent connections never block other clients."""
    async with serve(echo, connections=20, idle_seconds=60.0) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        for number in range(5):
            async with connected(port) as (reader, writer):
                writer.write(GET % number)
                assert status_of(await reader.readuntil(b"\r\n\r\n")) == 200
        ended = [pair for pair in silent if pair[0].at_eof() or pair[0].exception()]
        assert len(ended) >= 40
        for _, writer in silent:
            writer.transport.abort()


async def test_over_the_most_is_refused(serve: Serve):
    """With every slot in use the next request is refused; a free slot is used again."""
    proceed = asyncio.Event()

    async def working(scope: Any, receive: Any, send: Any) -> None:
        await proceed.wait()
        await echo(scope, receive, send)

    async with serve(working, connections=3) as port:
        taken = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in taken:
            writer.write(GET % 1)
        await asyncio.sleep(0.2)
        assert status_of(await exchange(port, GET % 2)) == 503
        proceed.set()
        for reader, writer in taken:
            assert status_of(await reader.readuntil(b"\r\n\r\n")) == 200
            writer.transport.abort()
        await asyncio.sleep(0)
        async with connected(port) as (reader, writer):
            writer.write(GET % 3)
            assert status_of(await reader.readuntil(b"\r\n\r\n")) == 200


async def test_a_reader_who_does_not_read(serve: Serve):
    """If a client does not read the answer, the connection and its memory are freed."""
    ended = asyncio.Event()

    async def large(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(32 * 1024 * 1024)})
        ended.set()

    limits = {"stall_seconds": 0.5, "idle_seconds": 0.5}
    async with serve(large, **limits) as port, connected(port) as (reader, writer):
        writer.write(GET % 1)
        await ended.wait()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(2.5)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(33 * 1024 * 1024)
