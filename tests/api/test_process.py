"""`proximity api` as a process: it starts, serves, finishes requests, and exits with 0. And errors
of SQL: a temporary one is 503 with Retry-After, any other is 500."""

import asyncio
from pathlib import Path

import httpx
import orjson
from sqlalchemy import insert, make_url, text

from catalog.database import Database
from catalog.models import Device
from tests.api.harness import Harness, error_body
from tests.api.process import sign_in
from tests.api.test_devices import NOW
from tests.servers.postgres import execute
from tests.servers.proximity import Command, Rig
from tests.servers.schema import on_postgres

DEVICES = 50_000
MOST_GROWTH = 32 * 1024  # KiB; the list itself is 200 bytes a device


async def test_it_serves_and_ends_well(served: Command):
    headers = await sign_in(served)
    async with httpx.AsyncClient(base_url=served.url) as client:
        assert (await client.get("/v2/profile", headers=headers)).status_code == 200
    samples = (await served.get("/metrics"))[1]
    assert 'route="/v2/profile",status="200"} 1.0' in samples
    await served.stop()
    assert "change-me-please" not in served.output
    assert headers["x-service-token"] not in served.output
    assert '"route": "/v2/profile"' in served.output
    assert '"event": "starting"' in served.output


async def test_a_request_in_flight_is_finished(served: Command):
    headers = await sign_in(served) | {"content-type": "application/json"}
    stopping = asyncio.Event()

    async def body():
        yield b'{"name": "V", "address": "A", '
        stopping.set()
        await asyncio.sleep(0)
        yield b'"active": 1}'

    async with httpx.AsyncClient(base_url=served.url) as client:
        request = client.post("/v2/region", content=body(), headers=headers)
        created = asyncio.create_task(request)
        await stopping.wait()
        ended = asyncio.create_task(served.stop())
        assert (await created).status_code == 201
    await ended


async def test_a_database_without_tables_is_refused(processes: Rig, tmp_path: Path):
    process = processes.start("api", DATABASE_URL=f"sqlite:///{tmp_path}/empty.sqlite3")
    assert await process.ended() == 1
    assert "run `proximity migrate`" in process.output.splitlines()[-1]


def peak_memory(process_id: int) -> int:
    """The peak resident memory of the process, in KiB."""
    with open(f"/proc/{process_id}/status", encoding="ascii") as status:  # noqa: PTH123
        (line,) = [line for line in status if line.startswith("VmHWM")]
    return int(line.split()[1])


@on_postgres  # whose driver would read all rows at once
async def test_a_long_list_is_sent_in_little_memory(database: Database, served: Command):
    """Whole and in order."""
    headers = await sign_in(served)
    of = {"company_id": 1, "create_on": NOW, "update_on": NOW}
    async with database.write.begin() as session:
        devices = [of | {"udid": f"device {number}"} for number in range(DEVICES)]
        await session.execute(insert(Device), devices)
    async with httpx.AsyncClient(base_url=served.url, headers=headers, timeout=120) as client:
        warm = (await client.get("/v2/crm", params={"limit": 2000})).json()
        assert [device["id"] for device in warm] == list(range(1, 2001))
        process = served.pid
        before = peak_memory(process)
        async with client.stream("GET", "/v2/crm") as answer:
            whole = b"".join([piece async for piece in answer.aiter_bytes()])
        growth = peak_memory(process) - before
        rest = (await client.get("/v2/crm", params={"after": DEVICES - 3})).json()
    assert [device["id"] for device in orjson.loads(whole)] == list(range(1, DEVICES + 1))
    assert [device["id"] for device in rest] == [DEVICES - 2, DEVICES - 1, DEVICES]
    assert growth < MOST_GROWTH


@on_postgres  # only it cancels statements
async def test_a_statement_that_is_cut_off(api: Harness, database_url: str) -> None:
    owner = await api.account()
    name = make_url(database_url).database
    execute(database_url, f"ALTER DATABASE \"{name}\" SET statement_timeout = '1s'")
    await api.database.close()  # what is opened from here on has the limit
    async with api.database.engine.begin() as connection:
        await connection.execute(text("LOCK TABLE venue IN ACCESS EXCLUSIVE MODE"))
        answer = await api.call("GET", "/region", owner)
    assert answer.status_code == 503, answer.text
    assert answer.headers["retry-after"]
    assert (await api.call("GET", "/region", owner)).status_code == 200
    async with api.database.engine.begin() as connection:
        await connection.execute(text("ALTER TABLE venue RENAME TO no_venue"))
    broken = await api.call("GET", "/region", owner | {"x-request-id": "mine"})
    assert error_body(broken, 500)["message"] == "internal error"
    assert broken.headers["x-request-id"] == "mine"
