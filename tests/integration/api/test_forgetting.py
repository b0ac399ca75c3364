"""DELETE /crm/{id}: a person is forgotten in SQL and Redis, and nothing else is."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import func, select

from api.records.held_data import shown_held
from api.sessions.sign_in import Passwords
from catalog import erasure
from catalog.erasure import DeviceData, DeviceRows, TopicRetention
from catalog.models import Account, AuditEntry, AuthenticationTrace, DetectionTrace, Device
from engine.process.settings import Settings
from engine.redis.devices import DeviceKey, copy_key
from tests.integration.api.harness import Harness, Headers, harness
from tests.servers.redis import RedisServer
from tests.servers.schema import make_schema

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
PERSON = "anna's phone"


@pytest.fixture
async def owner(api: Harness) -> Headers:
    return await api.account()


async def person(api: Harness, owner: Headers, traces: int = 3) -> int:
    """The number of a device with all that is stored about one."""
    async with api.database.write.begin() as session:
        company = await session.scalar(
            select(Account.company_id).where(Account.email == owner["x-service-key"])
        )
        about = dict.fromkeys(("name", "version", "model", "token_push"), PERSON)
        device = Device(company_id=company, udid=PERSON, create_on=NOW, update_on=NOW, **about)
        session.add(device)
        await session.flush()
        for number in range(traces):
            at = {"device_id": device.id, "create_on": NOW + timedelta(seconds=number)}
            session.add(DetectionTrace(venue_id=1, beacon_id=1, status="near", **at))
            session.add(AuthenticationTrace(application_id=1, **at))
    await api.stores.redis.set(copy_key("proximity:", DeviceKey(company or 0, PERSON)), b"a copy")
    return device.id


async def left(api: Harness) -> list[int]:
    async with api.database.read() as session:
        tables = (Device, DetectionTrace, AuthenticationTrace)
        return [
            await session.scalar(select(func.count()).select_from(each)) or 0 for each in tables
        ]


async def test_a_person_is_forgotten(api: Harness, owner: Headers):
    number = await person(api, owner)
    held = (await api.call("GET", f"/crm/{number}/held", owner)).json()
    counted = {"detections": 3, "authentications": 3, "presences": 0, "keys": 1}
    assert {name: held[name] for name in counted} == counted
    assert (held["kafka"], held["kafka_until"]) == ("unknown", None)  # no broker is there
    assert await left(api) == [1, 3, 3]
    deletion = await api.call("DELETE", f"/crm/{number}", owner)
    assert deletion.status_code == 200
    assert deletion.json() == held | {"status": "success", "code": 200}
    assert await left(api) == [0, 0, 0]
    assert [key async for key in api.stores.redis.scan_iter()] == []
    for method in ("GET", "PUT", "DELETE"):
        again = await api.call(method, f"/crm/{number}", owner, {"test": 1})
        assert again.status_code == 404


async def test_the_audit_names_no_erased_device(api: Harness, owner: Headers):
    number = await person(api, owner)
    await api.call("DELETE", f"/crm/{number}", owner)
    (entry,) = (await api.call("GET", "/audit", owner)).json()
    expected = {name: entry[name] for name in ("action", "kind", "ref", "before", "after", "email")}
    assert expected == {
        "action": "delete",
        "kind": "device",
        "ref": number,
        "before": {},
        "after": {},
        "email": owner["x-service-key"],
    }
    async with api.database.read() as session:
        stored = (await session.execute(select(AuditEntry.__table__))).all()
    assert PERSON not in repr(stored)


async def test_many_traces_go_in_short_transactions(
    api: Harness, owner: Headers, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(erasure, "_BATCH_ROWS", 5)
    number = await person(api, owner, traces=23)
    deletion = (await api.call("DELETE", f"/crm/{number}", owner)).json()
    assert (deletion["detections"], deletion["authentications"]) == (23, 23)
    assert await left(api) == [0, 0, 0]


@pytest.mark.parametrize(
    ("expected", "shown"),
    [
        (TopicRetention(True, timedelta(days=7)), ("bounded", "2026-11-27T12:00:00+0000")),
        (TopicRetention(True, None), ("unbounded", None)),
        (TopicRetention(False), ("unknown", None)),
    ],
)
def test_the_retention_of_kafka_is_reported(
    expected: TopicRetention, shown: tuple[str, str | None]
):
    held = shown_held(DeviceData(DeviceRows(), 0, expected), NOW)
    assert (held["kafka"], held["kafka_until"]) == shown


async def test_without_redis_the_person_stays(
    settings: Settings,
    passwords: Passwords,
    own_redis: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
):
    """Redis dies after SQL has deleted rows; a retry deletes the other traces."""
    changed = {"redis_url": SecretStr(own_redis.url), "redis_timeout": 1.0}
    await make_schema(settings.database_url.get_secret_value())
    async with harness(settings.model_copy(update=changed), passwords) as api:
        owner = await api.account()
        number = await person(api, owner, traces=7)
        original = erasure.erase_device

        async def with_a_death(*given: Any) -> Any:
            done = await original(*given)
            own_redis.kill()
            return done

        with monkeypatch.context() as patched:
            patched.setattr(erasure, "_BATCH_ROWS", 5)
            patched.setattr("engine.redis.forgetting.erase_device", with_a_death)
            for _ in range(2):
                failed = await api.call("DELETE", f"/crm/{number}", owner)
                assert failed.status_code == 503
                assert failed.json()["message"] == "SQL or Redis does not answer; try again"
                assert await left(api) == [1, 2, 2]
        own_redis.start()
        assert (await api.call("DELETE", f"/crm/{number}", owner)).status_code == 200
        assert await left(api) == [0, 0, 0]
