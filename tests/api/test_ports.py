"""A client takes no more of a port than its share, whatever it sends or does not send."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse

from catalog.database import Database
from engine.process.health import HttpServer, listen
from tests.api.harness import Harness
from tests.servers.proximity import Rig
from tests.servers.schema import on_sqlite
from tests.servers.waiting import eventually

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GET = b"GET /1 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"


async def answer(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await JSONResponse({})(scope, receive, send)


@contextlib.asynccontextmanager
async def serving(app: Any = answer, **limits: Any) -> AsyncIterator[int]:
    """Serves an application in this process; gives the port."""
    server = HttpServer(app, listen("127.0.0.1", 0, "none"), **limits)
    task = asyncio.create_task(server.serve_until())
    await eventually(lambda: server.started)
    try:
        yield server.port
    finally:
        server.should_exit = server.force_exit = True
        await task


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Pair]:
    """A bare connection, which sends what no HTTP client would send; aborted at the end."""
    pair = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield pair
    finally:
        pair[1].transport.abort()


async def status_of(reader: asyncio.StreamReader) -> int:
    """The status of the answer."""
    return int((await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1])


async def test_over_the_most_is_refused() -> None:
    async with serving(connections=20) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]

        async def status() -> int:
            async with connected(port) as (reader, writer):
                writer.write(GET)
                return await status_of(reader)

        assert await status() == 503
        for _, writer in silent:
            writer.transport.abort()

        async def is_served() -> bool:
            return await status() == 200

        await eventually(is_served)


@on_sqlite
async def test_bodies_that_dribble(api: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body has a size and a time; the session is checked first."""
    monkeypatch.setattr("api.middleware._UNTIL_ANSWER", 3.0)
    head = b"POST /v2/%s HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"

    async def attack(path: bytes, length: bytes, again: bytes) -> int:
        async with connected(port) as (reader, writer):
            status = asyncio.create_task(status_of(reader))
            writer.write(head % path + length + b"\r\n\r\n" + again)
            while not status.done():
                writer.write(again)
                await asyncio.sleep(0.1)
            return status.result()

    async with serving(api.app) as port, asyncio.timeout(30):
        found = await asyncio.gather(
            attack(b"auth", b"content-length: 15000", b" "),
            attack(b"auth", b"transfer-encoding: chunked", b"1;extension=1\r\n \r\n"),
            attack(b"region", b"content-length: 15000", b" "),
        )
        assert list(found) == [503, 503, 401]
        async with httpx.AsyncClient(timeout=60) as client:
            url = f"http://127.0.0.1:{port}/openapi.json"
            assert (await client.get(url)).status_code == 200


@on_sqlite
async def test_a_port_that_is_taken_is_named_with_its_setting(
    processes: Rig, database: Database
) -> None:
    with listen("127.0.0.1", 0, "none") as taken:
        port = taken.getsockname()[1]
        command = processes.start("api", API_PORT="0", API_METRICS_PORT=str(port))
        assert await command.ended() == 1
    assert f"127.0.0.1:{port}: Address already in use" in command.output
    assert "choose another with PROXIMITY_API_METRICS_PORT" in command.output
