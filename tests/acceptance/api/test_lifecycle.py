"""The process of the interface: it starts, serves, finishes requests, and exits with 0."""

import asyncio
import re
from pathlib import Path

import httpx

from tests.acceptance.api.process import ApiProcess
from tests.acceptance.rig import Rig


async def test_it_serves_and_ends_well(served: ApiProcess):
    headers = await served.sign_in()
    async with httpx.AsyncClient(base_url=served.url) as client:
        assert (await client.get("/v2/profile", headers=headers)).status_code == 200
        ready = (await client.get("/readyz")).json()
        page = await client.get("/docs")
        parts = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        loaded = [await client.get(f"/{part}") for part in parts]
    assert ready == {"status": "ready", "checks": {"running": True, "database": True}}
    assert len(parts) == 4
    assert [part.status_code for part in loaded] == [200] * 4
    assert "script-src 'self'" in page.headers["content-security-policy"]
    samples = (await served.command.get("/metrics"))[1]
    assert 'route="/v2/profile",status="200"} 1.0' in samples
    await served.command.stop()
    assert "change-me-please" not in served.command.output
    assert headers["x-service-token"] not in served.command.output
    assert '"route": "/v2/profile"' in served.command.output
    assert '"route": "/readyz"' not in served.command.output
    assert '"event": "starting"' in served.command.output


async def test_a_request_in_flight_is_finished(served: ApiProcess):
    headers = await served.sign_in()
    async with httpx.AsyncClient(base_url=served.url) as client:

        async def body():
            yield b'{"name": "V", "address": "A", '
            stopping.set()
            await asyncio.sleep(0)
            yield b'"active": 1}'

        stopping = asyncio.Event()
        created = asyncio.create_task(
            client.post(
                "/v2/region", content=body(), headers=headers | {"content-type": "application/json"}
            )
        )
        await stopping.wait()
        ended = asyncio.create_task(served.command.stop())
        assert (await created).status_code == 201
    await ended


async def test_a_database_without_tables_is_refused(processes: Rig, tmp_path: Path):
    process = ApiProcess(processes, DATABASE_URL=f"sqlite:///{tmp_path}/empty.sqlite3")
    assert await process.command.ended() == 1
    assert "run `proximity migrate`" in process.command.output.splitlines()[-1]
