"""`proximity forget`, as a process: one device goes, and nothing of any other."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from redis import Redis
from sqlalchemy import func, select

from catalog.database import open_database
from catalog.models import (
    AuthenticationTrace,
    Campaign,
    Company,
    DetectionTrace,
    Device,
    Presence,
)
from engine.cli.demo.document import demo_document
from engine.redis.claims import claim_key
from engine.redis.devices import DeviceKey, copy_key
from tests.integration.commands.proximity import Proximity

PREFIX = "proximity:"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
TABLES = (Device, DetectionTrace, AuthenticationTrace, Presence)


@pytest.fixture
def command(tmp_path: Path, database_url: str, redis_url: str) -> Proximity:
    more = {
        "PROXIMITY_DATABASE_URL": database_url,
        "PROXIMITY_REDIS_URL": redis_url,
        "PROXIMITY_SECRET_KEY": "a passphrase of some length",
    }
    made = Proximity(tmp_path, "127.0.0.1:1", "unused.", **more)
    assert made("migrate").returncode == 0
    document = json.dumps(demo_document(datetime.now(UTC))).encode()
    assert made("catalog", "load", "-", given=document).returncode == 0
    return made


async def _fill(url: str) -> tuple[str, dict[str, int], int]:
    """Two devices with traces; the company's name, the ids by udid, and a campaign of theirs."""
    database = open_database(url)
    async with database.write.begin() as session:
        company = (await session.scalars(select(Company).order_by(Company.id))).first()
        assert company is not None
        campaign = await session.scalar(select(func.min(Campaign.id)))
        devices = {
            udid: Device(
                company_id=company.id,
                udid=udid,
                nb_beacon=1,
                nb_campaign=1,
                test=False,
                create_on=NOON,
                update_on=NOON,
            )
            for udid in ("to go", "to stay")
        }
        session.add_all(devices.values())
        await session.flush()
        for device in devices.values():
            at = {"device_id": device.id, "create_on": NOON}
            session.add(DetectionTrace(venue_id=1, beacon_id=1, status="near", ip="::1", **at))
            session.add(AuthenticationTrace(application_id=1, ip="::1", **at))
            session.add(Presence(beacon_id=1, status="near", **at))
        ids = {udid: device.id for udid, device in devices.items()}
        name, company_id = company.name, company.id
    await database.close()
    assert campaign is not None
    return name, ids | {"company": company_id}, campaign


async def _left(url: str, ids: dict[str, int]) -> dict[str, list[int]]:
    """How many rows of each table are about each of the devices."""
    database = open_database(url)
    found = {}
    async with database.read() as session:
        for udid in ("to go", "to stay"):
            found[udid] = [
                await session.scalar(
                    select(func.count())
                    .select_from(table)
                    .where((table.id if table is Device else table.device_id) == ids[udid])
                )
                or 0
                for table in TABLES
            ]
    await database.close()
    return found


def test_one_device_goes_and_nothing_of_another(
    command: Proximity, database_url: str, redis_url: str
) -> None:
    name, ids, campaign = asyncio.run(_fill(database_url))
    company = ids["company"]
    with Redis.from_url(redis_url) as redis:
        for udid in ("to go", "to stay"):
            redis.set(claim_key(PREFIX.encode(), campaign, udid), b"a claim")
            redis.set(copy_key(PREFIX, DeviceKey(company, udid)), b"a copy")
        redis.set(copy_key(PREFIX, DeviceKey(company + 1, "to go")), b"of another company")
        before = redis.dbsize()

        said = command("forget", name, "to go")
        assert (said.returncode, said.stderr) == (0, "")
        assert "would delete" in said.stdout
        assert "devices 1, detections 1, authentications 1, presences 1, keys in Redis 2" in (
            said.stdout
        )
        assert asyncio.run(_left(database_url, ids)) == {"to go": [1] * 4, "to stay": [1] * 4}
        assert redis.dbsize() == before

        done = command("forget", str(company), "to go", "--yes")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("deleted, of ")
        assert asyncio.run(_left(database_url, ids)) == {"to go": [0] * 4, "to stay": [1] * 4}
        gone = (
            claim_key(PREFIX.encode(), campaign, "to go"),
            copy_key(PREFIX, DeviceKey(company, "to go")),
        )
        assert redis.exists(*gone) == 0
        assert redis.dbsize() == before - 2

    again = command("forget", name, "to go", "--yes")
    assert again.returncode == 0
    assert "devices 0, detections 0, authentications 0, presences 0, keys in Redis 0" in (
        again.stdout
    )


def test_what_cannot_be_done_is_said_on_one_line(command: Proximity) -> None:
    unknown = command("forget", "No such company", "to go", "--yes")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr == "proximity: there is no company 'No such company'\n"
