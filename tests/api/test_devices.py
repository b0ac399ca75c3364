"""/crm: devices, their traces and decisions, their test flag, and their deletion."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import func, select

from catalog.models import AuditEntry, AuthenticationTrace, DetectionTrace, Device, Statistic
from engine.process.settings import Settings
from engine.redis import forgetting
from engine.redis.decisions import DecisionStore, DeviceDecision
from engine.redis.devices import DeviceKey, copy_key
from rules.model import StoredDecision, Zone
from tests.api.harness import Bodies, Harness, Headers, harness
from tests.recorder.scene import ledger_on
from tests.servers.redis import RedisServer

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
PERSON = "anna's phone"


@pytest.fixture(autouse=True)
async def days(api: Harness) -> None:
    """Of the traces, as the recorder creates them."""
    await ledger_on(api.database).create_days(NOW.date(), NOW.date())


async def device_of(
    api: Harness, owner: Headers, udid: str = PERSON, traces: int = 0, beacon: int = 1
) -> int:
    """The id of a new device, with traces of both kinds, seven at each minute."""
    about = dict.fromkeys(("name", "version", "model", "token_push"), udid)
    company = await api.company_of(owner)
    device = Device(company_id=company, udid=udid, create_on=NOW, update_on=NOW, **about)
    await api.add(device)
    for number in range(traces):
        of: Any = {"device_id": device.id, "create_on": NOW - timedelta(minutes=number // 7)}
        detection = DetectionTrace(**of, venue_id=1, beacon_id=beacon, status="near")
        await api.add(detection, AuthenticationTrace(**of, application_id=1))
    return int(device.id)


@pytest.mark.parametrize(("name", "cursor"), [("beacon", "after"), ("auth", "after_auth")])
async def test_traces_page_by_page(
    api: Harness, owner: Headers, bodies: Bodies, venue: int, name: str, cursor: str
):
    """Each trace once, in the order of the whole."""
    beacon = await api.made(f"/region/{venue}/beacon", owner, bodies.beacon())
    number = await device_of(api, owner, traces=28, beacon=beacon["id"])
    whole = await api.read(f"/crm/{number}", owner)
    assert [len(whole[each]) for each in ("device", "auth", "beacon")] == [1, 28, 28]
    assert {each["beacon"]["name"] for each in whole["beacon"]} == {beacon["name"]}
    order = [(item["create_on"], item["id"]) for item in whole[name]]
    assert order == sorted(order, reverse=True)
    seen: list[Any] = []
    while True:
        after = seen[-1]["id"] if seen else 0
        page = await api.read(f"/crm/{number}?limit=5&{cursor}={after}", owner)
        if not page[name]:
            break
        seen += page[name]
    assert seen == whole[name]
    # No page begins behind another device's trace.
    other = await api.account()
    theirs = await device_of(api, other, traces=1)
    last = (await api.read(f"/crm/{theirs}", other))[name][0]["id"]
    assert (await api.read(f"/crm/{number}?{cursor}={last}", owner))[name] == []


async def test_traces_of_other_places(api: Harness, owner: Headers, bodies: Bodies, venue: int):
    fence = await api.made(f"/region/{venue}/geofencing", owner, bodies.geofence())
    tag = await api.made(f"/region/{venue}/qrcode", owner, bodies.tag())
    number = await device_of(api, owner)
    of: Any = {"device_id": number, "venue_id": venue, "status": "unknown"}
    await api.add(DetectionTrace(**of, geofence_id=fence["id"], create_on=NOW))
    await api.add(DetectionTrace(**of, scan_tag_id=tag["id"], create_on=NOW - timedelta(hours=1)))
    await api.call("DELETE", f"/region/{venue}/qrcode/{tag['id']}", owner)
    detail = await api.read(f"/crm/{number}", owner)
    assert detail["beacon"] == []
    assert [(each["kind"], each["place"]) for each in detail["place"]] == [
        ("geofence", {"id": fence["id"], "name": fence["name"]}),
        ("qrcode", {"id": tag["id"], "name": tag["name"]}),
    ]


async def test_names_of_deleted_records(api: Harness, owner: Headers, bodies: Bodies, venue: int):
    """Traces and statistics keep them; those of another company's device name nothing."""
    beacon = await api.made(f"/region/{venue}/beacon", owner, bodies.beacon(tags=["door"]))

    async def detected(headers: Headers) -> int:
        number = await device_of(api, headers)
        of = {"device_id": number, "venue_id": venue, "beacon_id": beacon["id"]}
        await api.add(DetectionTrace(**of, status="near", create_on=NOW))
        return number

    stranger = await api.account()
    mine, theirs = await detected(owner), await detected(stranger)
    for kind, ref in (("venue", venue), ("beacon", beacon["id"])):
        of = {"day": NOW.date(), "kind": kind, "ref": ref, "venue_id": venue}
        await api.add(Statistic(**of, detections=1, devices=1, notifications=1))
    figures = "/statistics?from=2026-11-01&to=2026-11-30"
    lines = await api.read(figures, owner)
    (trace,) = (await api.read(f"/crm/{mine}", owner))["beacon"]
    assert (lines[1]["name"], trace["beacon"]) == (beacon["name"], beacon)
    assert (await api.call("DELETE", f"/region/{venue}", owner)).status_code == 200
    assert await api.read(figures, owner) == lines
    assert (await api.read(f"/crm/{mine}", owner))["beacon"] == [trace]
    (received,) = (await api.read(f"/crm/{theirs}", stranger))["beacon"]
    assert (received["lieu"], received["beacon"]) == ("", {"id": beacon["id"]})


async def test_the_test_flag_and_the_time_zone(api: Harness, owner: Headers):
    await device_of(api, owner)
    await device_of(api, owner, "another")
    (before,) = await api.read(f"/crm?udid={PERSON}", owner)
    for body, changes in (
        ({"test": True}, {"test": True}),
        ({"device": [{"id": 1, "test": "0"}], "auth": [], "beacon": []}, {"test": False}),
        ({"datas": {"id": "1", "test": 1, "time_zone": "Asia/Tokyo"}}, {"time_zone": "Asia/Tokyo"}),
        ({"test": "true", "time_zone": ""}, {"time_zone": ""}),
    ):
        detail = (await api.call("PUT", "/crm/1", owner, body)).json()
        (device,) = detail["device"]
        assert detail == {"device": [device], "auth": [], "beacon": [], "place": []}
        assert device == device | changes
    assert device["update_on"] > before["update_on"]
    for bad, field in (
        ({"device": [{"id": 2, "test": 0}]}, "device"),
        ({"test": True, "time_zone": "Mars/Olympus"}, "time_zone"),
    ):
        assert [*await api.faults("PUT", "/crm/1", owner, bad)] == [field]


async def test_decisions_with_names_also_of_what_is_deleted(
    api: Harness, settings: Settings, owner: Headers, bodies: Bodies, venue: int
):
    beacon = await api.made(f"/region/{venue}/beacon", owner, bodies.beacon())
    path = f"/lieu/{venue}/campaign"
    campaign = await api.made(path, owner, bodies.campaign())
    await api.call("DELETE", f"{path}/{campaign['id']}", owner)
    number, other = await device_of(api, owner), await api.account()
    theirs = await device_of(api, other)
    at = datetime.fromisoformat("2026-11-20T22:41:00+01:00").timestamp()
    outcomes = {"outside_hours": [campaign["id"], 999]}
    stored = StoredDecision(at, at + 1, beacon["id"], Zone.NEAR, "throttled", outcomes)
    prefix, most = settings.redis_prefix, settings.recent_decisions
    store = DecisionStore(redis=api.stores.redis, prefix=prefix, most=most, deadline=5.0)
    await store.keep([DeviceDecision(DeviceKey(await api.company_of(owner), PERSON), stored)])
    (found,) = await api.read(f"/crm/{number}/decisions", owner)
    assert found["decided_at"] == "2026-11-20T22:41:01+0100"
    assert found["beacon"] == {"id": beacon["id"], "name": beacon["name"]}
    assert [(each["id"], each["name"]) for each in found["campaigns"]] == [
        (campaign["id"], campaign["name"]),
        (999, ""),
    ]
    assert await api.read(f"/crm/{theirs}/decisions", other) == []
    assert (await api.call("GET", f"/crm/{number}/decisions", other)).status_code == 404


async def left(api: Harness) -> list[int]:
    """The rows about devices."""
    async with api.database.read() as session:
        return [
            await session.scalar(select(func.count()).select_from(table)) or 0
            for table in (Device, DetectionTrace, AuthenticationTrace)
        ]


async def test_a_person_is_forgotten(api: Harness, owner: Headers, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(forgetting, "_BATCH_ROWS", 5)
    number = await device_of(api, owner, traces=23)
    key = copy_key("proximity:", DeviceKey(await api.company_of(owner), PERSON))
    await api.stores.redis.set(key, b"a copy")
    held = await api.read(f"/crm/{number}/held", owner)
    counts = {"detections": 23, "authentications": 23, "presences": 0, "keys": 1}
    assert held == counts | {"kafka": "unknown", "kafka_until": None}  # no broker is there
    deletion = await api.call("DELETE", f"/crm/{number}", owner)
    assert deletion.json() == held | {"status": "success", "code": 200}
    assert await left(api) == [0, 0, 0]
    assert [key async for key in api.stores.redis.scan_iter()] == []
    for method in ("GET", "PUT", "DELETE"):
        assert (await api.call(method, f"/crm/{number}", owner, {"test": 1})).status_code == 404
    (entry,) = await api.read("/audit", owner)
    assert (entry["action"], entry["ref"], entry["before"]) == ("delete", number, {})
    async with api.database.read() as session:
        assert PERSON not in repr((await session.execute(select(AuditEntry.__table__))).all())


async def test_without_redis(
    settings: Settings, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch, bodies: Bodies
):
    """What needs Redis is 503; a deletion that it interrupts is completed by another try."""
    changed = settings.model_copy(update={"redis_url": SecretStr(own_redis.url)})
    async with harness(changed) as api:
        owner = await api.account()
        number = await device_of(api, owner, traces=7)
        venue = (await api.made("/region", owner, bodies.venue()))["id"]
        campaign = (await api.made(f"/lieu/{venue}/campaign", owner, bodies.campaign()))["id"]
        own_redis.kill()
        for path in (
            *(f"/crm/{number}/decisions", f"/crm/{number}/held", "/connector/calls"),
            *("/statistics/reasons", f"/statistics/region/{venue}/recent"),
        ):
            answer = await api.call("GET", path, owner)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1"), path
        explain = f"/lieu/{venue}/campaign/{campaign}/explain"
        assert (await api.call("POST", explain, owner, {"udid": "x"})).status_code == 503
        assert (await api.call("POST", explain, owner, {})).status_code == 200
        monkeypatch.setattr(forgetting, "_BATCH_ROWS", 5)
        assert (await api.call("DELETE", f"/crm/{number}", owner)).status_code == 503
        assert (await left(api))[0] == 1
        own_redis.start()
        assert (await api.call("DELETE", f"/crm/{number}", owner)).status_code == 200
        assert await left(api) == [0, 0, 0]
