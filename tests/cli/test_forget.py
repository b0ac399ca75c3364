"""`proximity forget`: the data of one device are deleted, and of no other."""

import asyncio
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from redis import Redis
from sqlalchemy import func, select

from catalog.database import open_database
from catalog.models import AuthenticationTrace, DetectionTrace, Device, Presence
from engine.cli.application import run
from engine.redis.claims import claims_key
from engine.redis.decision_store import decisions_key
from engine.redis.devices import DeviceKey, copy_key
from tests.catalog.records import Records
from tests.servers.schema import make_schema

PREFIX = "proximity:"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
GOES, STAYS = "to go", "to stay"
TABLES = (DetectionTrace, AuthenticationTrace, Presence)


class Estate(NamedTuple):
    """A company with a living and a deleted campaign, and two devices by their udid."""

    company: str
    company_id: int
    campaigns: list[int]
    devices: dict[str, int]


@pytest.fixture
def estate(database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Estate:
    monkeypatch.setenv("PROXIMITY_DATABASE_URL", database_url)
    monkeypatch.setenv("PROXIMITY_REDIS_URL", redis_url)
    monkeypatch.setenv("PROXIMITY_KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:9")
    return asyncio.run(_filled(database_url))


async def _filled(url: str) -> Estate:
    await make_schema(url)
    database, records = open_database(url), Records()
    async with database.write.begin() as session:
        company = records.company()
        venue = records.venue(company)
        campaigns = [records.campaign(venue) for _ in range(2)]
        session.add_all([company, *campaigns])
        await session.flush()
        devices = [_device(company.id, udid) for udid in (GOES, STAYS)]
        session.add_all(devices)
        await session.flush()
        for device in devices:
            at = {"device_id": device.id, "create_on": NOON}
            session.add(DetectionTrace(venue_id=1, beacon_id=1, status="near", ip="::1", **at))
            session.add(AuthenticationTrace(application_id=1, ip="::1", **at))
            session.add(Presence(kind="beacon", ref=1, status="near", **at))
        ids = {device.udid: device.id for device in devices}
        made = Estate(company.name, company.id, [each.id for each in campaigns], ids)
    async with database.write.begin() as session:
        await session.delete(await session.merge(campaigns[1]))
    await database.close()
    return made


def _device(company_id: int, udid: str) -> Device:
    counted = {"nb_beacon": 1, "nb_campaign": 1, "create_on": NOON, "update_on": NOON}
    return Device(company_id=company_id, udid=udid, test=False, **counted)


async def _rows(url: str, device_id: int) -> list[int]:
    """How many rows of each table are about a device, its own first."""
    database = open_database(url)
    async with database.read() as session:
        columns = (Device.id, *(table.device_id for table in TABLES))
        counts = [
            await session.scalar(select(func.count()).where(column == device_id))
            for column in columns
        ]
    await database.close()
    return [count or 0 for count in counts]


def test_one_device_is_erased_and_nothing_of_another(
    estate: Estate, database_url: str, redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def left() -> list[list[int]]:
        return [asyncio.run(_rows(database_url, estate.devices[udid])) for udid in (GOES, STAYS)]

    with Redis.from_url(redis_url) as redis:
        for udid in (GOES, STAYS):
            for campaign in estate.campaigns:
                redis.hset(claims_key(PREFIX.encode(), udid), str(campaign), b"a claim")
            device = DeviceKey(estate.company_id, udid)
            redis.set(copy_key(PREFIX, device), b"a copy")
            redis.lpush(decisions_key(PREFIX.encode(), device), b"a decision")
        other = copy_key(PREFIX, DeviceKey(estate.company_id + 1, GOES))
        redis.set(other, b"of another company")

        assert run(["forget", estate.company, GOES]) == 0
        printed, _ = capsys.readouterr()
        counted = "devices 1, detections 1, authentications 1, presences 1, keys in Redis 4\n"
        assert printed.startswith(f"would delete, of {estate.company}: {counted}")
        assert printed.endswith("nothing is deleted yet: add --yes\n")
        assert left() == [[1] * 4, [1] * 4]
        assert redis.dbsize() == 7

        assert run(["forget", str(estate.company_id), GOES, "--yes"]) == 0
        printed, _ = capsys.readouterr()
        assert printed.startswith(f"deleted, of {estate.company}: {counted}")
        assert "Kafka keeps its messages until retention: proximity.*" in printed
        assert left() == [[0] * 4, [1] * 4]
        kept = {key.decode() for key in redis.scan_iter()}
        assert len(kept) == 4
        assert {key for key in kept if GOES in key} == {other}

    assert run(["forget", estate.company, GOES, "--yes"]) == 0
    printed, _ = capsys.readouterr()
    assert "devices 0, detections 0, authentications 0, presences 0, keys in Redis 0" in printed
