"""`proximity forget`: the data of one device are deleted, and of no other."""

import asyncio

import pytest
from redis import Redis
from sqlalchemy import select

from catalog.database import open_database
from catalog.models import Device, Presence
from engine.cli.application import run
from engine.redis.claims import claims_key
from engine.redis.decisions import decisions_key
from engine.redis.devices import DeviceKey, copy_key
from tests.catalog.records import NOON, Records
from tests.servers.schema import make_schema

GOES, STAYS = "to go", "to stay"


async def _filled(url: str) -> tuple[str, int, int]:
    """The name and the id of a company with two devices, and its campaign."""
    await make_schema(url)
    database, records = open_database(url), Records()
    company = records.company()
    campaign = records.campaign(records.venue(company))
    async with database.write.begin() as session:
        session.add_all([company, campaign])
        await session.flush()
        counted = {"nb_beacon": 1, "nb_campaign": 1, "create_on": NOON, "update_on": NOON}
        for udid in (GOES, STAYS):
            device = Device(company_id=company.id, udid=udid, test=False, **counted)
            session.add(device)
            await session.flush()
            at = {"device_id": device.id, "create_on": NOON}
            session.add(Presence(kind="beacon", ref=1, status="near", **at))
        found = company.name, company.id, campaign.id
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
    company, company_id, campaign = asyncio.run(_filled(database_url))
    mine, others = DeviceKey(company_id, GOES), DeviceKey(company_id + 1, GOES)
    with Redis.from_url(redis_url) as redis:
        for key in (mine, others, DeviceKey(company_id, STAYS)):
            redis.set(copy_key("proximity:", key), b"a copy")
            redis.lpush(decisions_key(b"proximity:", key), b"a decision")
            redis.hset(claims_key(b"proximity:", key.udid), str(campaign), b"a claim")
        counted = "devices 1, detections 0, authentications 0, presences 1, keys in Redis 3\n"
        assert run(["forget", company, GOES]) == 0
        printed, _ = capsys.readouterr()
        assert printed.startswith(f"would delete, of {company}: {counted}")
        assert printed.endswith("nothing is deleted yet: add --yes\n")
        assert (asyncio.run(_devices(database_url)), redis.dbsize()) == ({GOES, STAYS}, 8)
        assert run(["forget", str(company_id), GOES, "--yes"]) == 0
        printed, _ = capsys.readouterr()
        assert printed.startswith(f"deleted, of {company}: {counted}")
        assert "Kafka keeps its messages until retention: proximity.*" in printed
        assert asyncio.run(_devices(database_url)) == {STAYS}
        left = (copy_key("proximity:", mine), decisions_key(b"proximity:", mine))
        assert (redis.dbsize(), redis.exists(*left)) == (5, 0)
