"""A client takes no more of the server than its share, whatever it sends or does not send."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.process.http_server import HttpServer, listen
from tests.process.sockets import connected, read_until_closed, send_all, status_of
from tests.servers.waiting import eventually

GET = b"GET /1 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"


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
    ],
)
async def test_heads(head: bytes, status: int) -> None:
    async with serving(echo) as port:
        answer = await exchange(
            port, b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n" + head + b"\r\n"
        )
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


async def test_over_the_most_is_refused() -> None:
    async with serving(echo, connections=20) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        assert status_of(await exchange(port, GET)) == 503
        for _, writer in silent:
            writer.transport.abort()

        async def is_served() -> bool:
            async with connected(port) as (reader, writer):
                writer.write(GET)
                return status_of(await reader.readuntil(b"\r\n\r\n")) == 200

        await eventually(is_served)
