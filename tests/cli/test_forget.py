"""`proximity forget`: the data of one device are deleted, and of no other."""

import asyncio

import pytest
from redis import Redis
from sqlalchemy import select

from catalog.database import open_database
from catalog.models import Device
from engine.cli.application import run
from engine.redis.devices import DeviceKey, copy_key
from tests.catalog.records import NOON, Records
from tests.servers.schema import make_schema

GOES, STAYS = "to go", "to stay"


async def _filled(url: str) -> tuple[str, int]:
    """The name and the id of a company with two devices."""
    await make_schema(url)
    database, company = open_database(url), Records().company()
    async with database.write.begin() as session:
        session.add(company)
        await session.flush()
        counted = {"nb_beacon": 1, "nb_campaign": 1, "create_on": NOON, "update_on": NOON}
        for udid in (GOES, STAYS):
            session.add(Device(company_id=company.id, udid=udid, test=False, **counted))
        found = company.name, company.id
    await database.close()
    return found


async def _devices(url: str) -> set[str]:
    database = open_database(url)
    async with database.read() as session:
        found = set(await session.scalars(select(Device.udid)))
    await database.close()
    return found


def test_one_device_is_erased_and_nothing_of_another(
    database_url: str,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PROXIMITY_DATABASE_URL", database_url)
    monkeypatch.setenv("PROXIMITY_REDIS_URL", redis_url)
    monkeypatch.setenv("PROXIMITY_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9")
    company, company_id = asyncio.run(_filled(database_url))
    mine, others = DeviceKey(company_id, GOES), DeviceKey(company_id + 1, GOES)
    with Redis.from_url(redis_url) as redis:
        for key in (mine, others, DeviceKey(company_id, STAYS)):
            redis.set(copy_key("proximity:", key), b"a copy")
        counted = "devices 1, detections 0, authentications 0, presences 0, keys in Redis 1\n"
        assert run(["forget", company, GOES]) == 0
        printed, _ = capsys.readouterr()
        assert printed.startswith(f"would delete, of {company}: {counted}")
        assert printed.endswith("nothing is deleted yet: add --yes\n")
        assert (asyncio.run(_devices(database_url)), redis.dbsize()) == ({GOES, STAYS}, 3)
        assert run(["forget", str(company_id), GOES, "--yes"]) == 0
        printed, _ = capsys.readouterr()
        assert printed.startswith(f"deleted, of {company}: {counted}")
        assert "Kafka keeps its messages until retention: proximity.*" in printed
        assert asyncio.run(_devices(database_url)) == {STAYS}
        assert (redis.dbsize(), redis.exists(copy_key("proximity:", mine))) == (2, 0)
