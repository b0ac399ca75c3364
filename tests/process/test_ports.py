"""The ports of a real process: bodies that never end, and a port that is taken."""

import asyncio
import time

import httpx

from catalog.database import Database
from engine.process.http_server import listen
from tests.api.process import ApiProcess
from tests.process.sockets import connected, status_of
from tests.system.rig import Rig


async def still_answers(served: ApiProcess) -> None:
    async with httpx.AsyncClient(timeout=10) as client:
        assert (await client.get(f"{served.url}/healthz")).status_code == 200
    assert (await served.command.get("/healthz"))[0] == 200


async def test_bodies_that_dribble(served: ApiProcess):
    """A body has a size and a time; the session is checked first."""
    port = int(served.url.rpartition(":")[2])
    head = b"POST /v2/%s HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"

    async def attack(path: bytes, length: bytes, again: bytes) -> bytes:
        async with connected(port) as (reader, writer):
            answer = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
            writer.write(head % path + length + b"\r\n\r\n" + again)
            while not answer.done():
                writer.write(again)
                await asyncio.sleep(0.1)
            return answer.result()

    started = time.monotonic()
    slow, chunked, nobody = await asyncio.gather(
        attack(b"auth", b"content-length: 15000", b" "),
        attack(b"auth", b"transfer-encoding: chunked", b"1;extension=1\r\n \r\n"),
        attack(b"region", b"content-length: 15000", b" "),
    )
    assert [status_of(answer) for answer in (slow, chunked, nobody)] == [408, 408, 401]
    assert time.monotonic() - started < 40
    await still_answers(served)


async def test_a_port_that_is_taken_is_named_with_its_setting(processes: Rig, database: Database):
    with listen("127.0.0.1", 0, setting="none") as taken:
        port = taken.getsockname()[1]
        command = processes.start("api", API_PORT="0", API_METRICS_PORT=str(port))
        assert await command.ended() == 1
    assert f"127.0.0.1:{port}: Address already in use" in command.output
    assert "choose another with PROXIMITY_API_METRICS_PORT" in command.output
