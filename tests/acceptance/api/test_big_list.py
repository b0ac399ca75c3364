"""A list of very many devices is sent in little memory, whole and in order."""

import os

import httpx
import orjson
from sqlalchemy import text

from catalog.database import Database
from tests.acceptance.api.process import ApiProcess

DEVICES = 1_000_000 if "PROXIMITY_TEST_FULL" in os.environ else 50_000
MOST_GROWTH = 32 * 1024  # KiB; the list itself is 200 bytes a device

_NUMBERS = {
    "postgresql": "SELECT n FROM generate_series(1, {count}) AS n",
    "sqlite": "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s "
    "WHERE n < {count}) SELECT n FROM s",
}


async def fill(database: Database, count: int) -> None:
    """Insert devices of the first company, with ids from 1 on."""
    numbers = _NUMBERS[database.dialect].format(count=count)
    async with database.engine.begin() as connection:
        await connection.execute(
            text(
                "INSERT INTO device (company_id, udid, nb_beacon, nb_campaign, name, version, "
                "model, test, create_on, update_on) SELECT 1, 'device ' || n, n, 0, 'android', "
                "'14', 'a model', false, '2026-11-20 10:00:00', '2026-11-20 10:00:00' "
                f"FROM ({numbers}) AS numbers"  # our own numbers
            )
        )


def peak_memory(process_id: int) -> int:
    """The peak resident memory of the process, in KiB."""
    with open(f"/proc/{process_id}/status", encoding="ascii") as status:  # noqa: PTH123
        (line,) = [line for line in status if line.startswith("VmHWM")]
    return int(line.split()[1])


async def test_a_list_of_very_many(database: Database, served: ApiProcess):
    headers = await served.sign_in()
    await fill(database, DEVICES)
    async with httpx.AsyncClient(base_url=served.url, headers=headers, timeout=120) as client:
        warm = (await client.get("/v2/crm", params={"limit": 2000})).json()
        assert [device["id"] for device in warm] == list(range(1, 2001))
        process = served.command.process.pid
        before = peak_memory(process)
        async with client.stream("GET", "/v2/crm") as answer:
            whole = b"".join([piece async for piece in answer.aiter_bytes()])
        growth = peak_memory(process) - before
        rest = (await client.get("/v2/crm", params={"after": DEVICES - 3})).json()
    assert [device["id"] for device in orjson.loads(whole)] == list(range(1, DEVICES + 1))
    assert [device["id"] for device in rest] == [DEVICES - 2, DEVICES - 1, DEVICES]
    assert growth < MOST_GROWTH
