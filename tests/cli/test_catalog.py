"""`proximity catalog load`, `index rebuild`, `connector`, `forget` and `account list`."""

import asyncio
import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from redis import Redis
from sqlalchemy import func, select

from catalog.database import Database
from catalog.models import Device, Outbox, Presence
from engine.cli.application import run
from engine.cli.demo.walk import demo_document
from engine.redis.claims import claims_key
from engine.redis.decisions import decisions_key
from engine.redis.devices import DeviceKey, copy_key
from tests.catalog.records import NOON, Records
from tests.servers.http_service import HttpService, content, serving
from tests.servers.proximity import Command, Rig
from tests.servers.schema import make_schema, opened


@pytest.fixture
def command(rig: Rig, empty_database_url: str, redis_url: str) -> Rig:
    rig.settings |= {"DATABASE_URL": empty_database_url, "REDIS_URL": redis_url}
    rig.settings["SECRET_KEY"] = "a passphrase of some length"
    return rig


def test_load_twice_and_rebuild(command: Rig, redis_url: str) -> None:
    file = command.write("catalog.json", json.dumps(demo_document(datetime.now(UTC))).encode())
    for early in (command("catalog", "load", file), command("index", "rebuild")):
        assert (early.returncode, early.stdout) == (1, "")
        assert "run `proximity migrate`" in early.stderr
    assert command("migrate").returncode == 0
    done = command("catalog", "load", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "beacons: 24 created, 0 updated, 0 unchanged" in done.stdout
    assert "beacons: 0 created, 0 updated, 24 unchanged" in command("catalog", "load", file).stdout
    assert command("index", "rebuild").returncode == 0
    with Redis.from_url(redis_url) as redis:
        right = _fields(redis)
        changes = redis.xlen("proximity:index:changes")
        for number in range(16):
            name = f"proximity:index:{{{number}}}"
            wrong = dict.fromkeys({*redis.hkeys(name), b"c:999999"} - {b"m"}, b"wrong")
            redis.hset(name, mapping=wrong)
        done = command("index", "rebuild")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("the index is built: 24 beacons, ")
        assert _fields(redis) == right
        assert redis.xlen("proximity:index:changes") == changes + 1


def test_no_connector_leads_inside_or_replaces_a_header(command: Rig) -> None:
    assert command("migrate").returncode == 0
    inside = {"name": "c", "url": "http://169.254.169.254/", "method": "POST", "auth": "header"}
    listed = [[], [{"key": "Host", "value": "geheim"}]]
    companies = [{"name": str(n), "connector": {**inside, "parameters": listed[n]}} for n in (0, 1)]
    done = command("catalog", "load", "-", given=json.dumps({"companies": companies}).encode())
    assert done.returncode == 1
    assert done.stderr.count("leads to an address that is not public") == 2
    assert "companies[1].connector.parameters" in done.stderr
    assert "Host" in done.stderr
    assert "geheim" not in done.stderr
    assert done.stderr.endswith("has 3 faults; nothing was changed\n")


def _fields(redis: Redis) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for number in range(16):
        found |= redis.hgetall(f"proximity:index:{{{number}}}")
    del found[b"m"]
    return found


def test_a_document_is_loaded_without_redis(rig: Rig, sqlite_url: str) -> None:
    rig.settings |= {"DATABASE_URL": sqlite_url, "REDIS_URL": "redis://127.0.0.1:1/0"}
    assert rig("migrate").returncode == 0
    done = rig("catalog", "load", "-", given=b'{"companies": [{"name": "A"}]}')
    assert (done.returncode, done.stderr) == (0, "")
    assert "companies: 1 created" in done.stdout
    done = rig("catalog", "load", "-", given=b'{"companies": [{"name": "B", "colour": 1}]}')
    assert (done.returncode, done.stdout) == (1, "")
    fault, last = done.stderr.splitlines()
    assert fault.startswith("-: companies[0].colour: ")
    assert last == "proximity: - has 1 fault; nothing was changed"


GOES, STAYS = "to go", "to stay"


async def test_one_device_is_erased_and_nothing_of_another(
    rig: Rig, database: Database, database_url: str, redis_url: str
) -> None:
    rig.settings = {"DATABASE_URL": database_url, "REDIS_URL": redis_url}
    rig.settings["KAFKA_BOOTSTRAP_SERVERS"] = "127.0.0.1:9"
    records = Records()
    company = records.company()
    campaign = records.campaign(records.venue(company))
    dates = {"create_on": NOON, "update_on": NOON}
    async with database.write.begin() as session:
        session.add(campaign)
        for udid in (GOES, STAYS):
            device = Device(company=company, udid=udid, nb_beacon=1, nb_campaign=1, **dates)
            session.add(device)
            await session.flush()
            at = {"device_id": device.id, "create_on": NOON}
            session.add(Presence(kind="beacon", ref=1, status="near", **at))

    async def udids() -> set[str]:
        async with database.read() as session:
            return set(await session.scalars(select(Device.udid)))

    mine, others = DeviceKey(company.id, GOES), DeviceKey(company.id + 1, GOES)
    with Redis.from_url(redis_url) as redis:
        for key in (mine, others, DeviceKey(company.id, STAYS)):
            redis.set(copy_key("proximity:", key), b"a copy")
            redis.lpush(decisions_key("proximity:", key), b"a decision")
            redis.hset(claims_key("proximity:", key.udid), str(campaign.id), b"a claim")
        counted = "devices 1, detections 0, authentications 0, presences 1, keys in Redis 3\n"
        dry = rig("forget", company.name, GOES)
        assert dry.stdout.startswith(f"would delete, of {company.name}: {counted}")
        assert dry.stdout.endswith("nothing is deleted yet: add --yes\n")
        assert (await udids(), redis.dbsize()) == ({GOES, STAYS}, 8)
        done = rig("forget", str(company.id), GOES, "--yes")
        assert done.stdout.startswith(f"deleted, of {company.name}: {counted}")
        assert "Kafka keeps its messages until retention: proximity.*" in done.stdout
        assert await udids() == {STAYS}
        left = (copy_key("proximity:", mine), decisions_key("proximity:", mine))
        assert (redis.dbsize(), redis.exists(*left)) == (5, 0)


def test_accounts_are_listed_in_both_forms(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROXIMITY_DATABASE_URL", sqlite_url)
    monkeypatch.setattr("sys.stdin", io.StringIO("a password that is long\n"))
    create = ["account", "create", "a@b.example", "--company", "Mall", "--create-company"]
    create += ["--permission", "1", "--password-stdin"]
    for command in (["migrate"], create):
        assert run(command) == 0
    capsys.readouterr()
    assert run(["account", "list"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["company", "e-mail", "state", "levels"],
        ["Mall", "a@b.example", "active", "all", "1"],
    ]
    assert run(["account", "permissions", "a@b.example", "--permission", "device=0"]) == 0
    for word, state in (("disable", "disabled"), ("enable", "active")):
        assert (run(["account", word, "a@b.example"]), run(["account", "list"])) == (0, 0)
        assert capsys.readouterr().out.endswith(f"  {state}  device 0, the rest 1\n")
    assert run(["account", "disable", "b@b.example"]) == 1, "there is no such account"
    capsys.readouterr()
    assert run(["account", "list", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    account = json.loads(line)
    assert (account["company"], account["active"]) == ("Mall", True)
    levels = account["permission"]
    assert (levels.pop("device"), set(levels.values())) == (0, {1})
    assert run(["tail", "--company", "9" * 20]) == 1, "no id has so many digits"


KEY, NEW = "a passphrase of some length", "another passphrase entirely"
TOKEN, SECRET = "the-secret-token", "whsec_c2VjcmV0LXNlY3JldA=="


async def load(rig: Rig, url: str, service: HttpService) -> None:
    """Make a company whose connector is the service."""
    await make_schema(url)
    rig.settings = {"DATABASE_URL": url, "REDIS_URL": "redis://127.0.0.1:1/0", "SECRET_KEY": KEY}
    rig.settings["CONNECTOR_ALLOW_NETWORKS"] = "127.0.0.0/8"
    connector = {
        "name": "content",
        "url": service.url("/content"),
        "method": "POST",
        "auth": "header",
        "parameters": [{"key": "x-token", "value": TOKEN}],
        "secret": SECRET,
    }
    document = {"companies": [{"name": "Museum", "connector": connector}]}
    done = rig("catalog", "load", "-", given=json.dumps(document).encode())
    assert done.returncode == 0, done.stderr


async def outbox(url: str) -> int:
    """The number of its rows."""
    async with opened(url) as database, database.read() as session:
        return await session.scalar(select(func.count()).select_from(Outbox)) or 0


async def test_after_rekey_the_old_key_is_not_needed(rig: Rig, sqlite_url: str) -> None:
    async with serving(content()) as service:
        await load(rig, sqlite_url, service)

        async def run(key: str, *words: str) -> Command:
            rig.settings["SECRET_KEY"] = key
            return await asyncio.to_thread(rig, "connector", *words)

        lost = await run(NEW, "rekey")
        assert lost.returncode == 1
        assert lost.stderr.startswith("proximity: 1 connectors are encrypted with none of the keys")
        assert lost.stderr.rstrip().endswith("their companies: Museum")
        before = await outbox(sqlite_url)
        done = await run(f"{NEW},{KEY}", "rekey")
        assert (done.returncode, done.stdout) == (0, "1 connectors encrypted anew\n")
        assert await outbox(sqlite_url) > before  # the index gets the new tokens
        shown = await run(NEW, "test", "Museum")
    (received,) = service.received
    assert (shown.returncode, shown.stderr) == (0, "")
    assert received.headers["x-token"] == TOKEN
    assert "x-token: *****" in shown.stdout
    assert "webhook-signature: *****" in shown.stdout
    assert shown.stdout.rstrip().endswith("template <p>hello</p>")
    assert TOKEN not in shown.stdout
    assert SECRET not in shown.stdout
