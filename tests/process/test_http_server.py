"""A client takes no more of the server than its share, whatever it sends or does not send."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.process.http_server import HttpServer, listen
from tests.process.sockets import connected, read_until_closed, send_all, status_of
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


@asynccontextmanager
async def serving(app: Any, **limits: Any) -> AsyncIterator[int]:
    """Serves an application in this process; gives the port."""
    listener = listen("127.0.0.1", 0, setting="none")
    server = HttpServer(app, **limits)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    await eventually(lambda: server.started)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await task
        listener.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.process.http_server._WAIT_SECONDS", 0.6)


async def exchange(port: int, *pieces: bytes) -> bytes:
    """The answer to these bytes, until the connection is closed."""
    async with connected(port) as (reader, writer):
        answer = asyncio.create_task(read_until_closed(reader))
        await send_all(writer, pieces)
        return await answer


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"x: " + b"y" * 60_000 + b"\r\n", 200),
        (b"x: " + b"y" * 200_000 + b"\r\n", 400),
        ((b"x: " + b"y" * 10_000 + b"\r\n") * 20, 400),
        (b"connection: upgrade\r\nupgrade: websocket\r\n", 200),
    ],
)
async def test_heads(impatient: None, head: bytes, status: int) -> None:
    async with serving(echo) as port:
        answer = await exchange(port, b"GET / HTTP/1.1\r\nhost: a\r\n" + head + b"\r\n")
    assert status_of(answer) in (status, 0 if status == 400 else 200)


@pytest.mark.parametrize(
    "endless",
    [
        [b"GET / HTTP/1.1\r\nx: ", b"y" * 4000],
        [b"GET / HTTP/1.1\r\n", b"x: y\r\n" * 10],
        [b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1;", b"x" * 4000],
    ],
)
async def test_an_endless_head_is_refused_and_closed(endless: list[bytes]) -> None:
    first, again = endless
    async with serving(echo) as port, connected(port) as (reader, writer):
        answer = asyncio.create_task(read_until_closed(reader))
        sent = await send_all(writer, [first, *[again] * 50_000])
        await answer
    assert sent < 8 * 1024 * 1024  # what the system holds of a connection goes as well


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", 0),
        (GET % 1, 200),
        (b"GET / HT", 0),
        (GET % 1 + b"GET / HTTP/1.1\r\nx: ", 200),
    ],
)
async def test_a_connection_that_stops_is_closed(impatient: None, sent: bytes, status: int) -> None:
    async with serving(echo) as port:
        started = time.monotonic()
        assert status_of(await exchange(port, sent)) == status
        assert time.monotonic() - started < 10


async def test_a_request_that_takes_long_is_not_cut_off(impatient: None) -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(2.0)
        await echo(scope, receive, send)

    async with serving(slow) as port, connected(port) as (reader, writer):
        writer.write(GET % 1)
        assert status_of(await reader.readuntil(b"\r\n\r\n")) == 200


async def test_over_the_most_is_refused_until_silent_connections_are_closed(
    impatient: None,
) -> None:
    async with serving(echo, connections=20) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        assert status_of(await exchange(port, GET % 1)) == 503
        await asyncio.sleep(1.0)
        async with connected(port) as (reader, writer):
            writer.write(GET % 2)
            assert status_of(await reader.readuntil(b"\r\n\r\n")) == 200
        for _, writer in silent:
            writer.transport.abort()


async def test_a_reader_who_does_not_read_is_cut_off(impatient: None) -> None:
    async def large(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(32 * 1024 * 1024)})

    async with serving(large) as port, connected(port) as (reader, writer):
        writer.write(GET % 1)
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(3.0)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(33 * 1024 * 1024)
