"""GET /crm/{id}/decisions: what triggers kept, with the names of the company's own records."""

from datetime import UTC, datetime

import pytest
from pydantic import SecretStr
from sqlalchemy import select

from api.sessions.sign_in import Passwords
from catalog.models import Account, Device
from engine.process.settings import Settings
from engine.redis.decision_store import DeviceDecision
from engine.redis.devices import DeviceKey
from engine.wiring.explain import build_decision_store
from rules.model import Zone
from rules.stored_decision import StoredDecision
from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, Headers, harness
from tests.servers.redis import RedisServer
from tests.servers.schema import make_schema

AT = datetime.fromisoformat("2026-11-20T22:41:00+01:00").timestamp()


@pytest.fixture
async def owner(api: Harness) -> Headers:
    return await api.account()


async def device_of(api: Harness, owner: Headers, udid: str = "phone") -> DeviceKey:
    """A new device, and the company it is of."""
    async with api.database.write.begin() as session:
        query = select(Account.company_id).where(Account.email == owner["x-service-key"])
        company = await session.scalar(query)
        assert company is not None
        now = datetime.now(UTC)
        session.add(Device(company_id=company, udid=udid, create_on=now, update_on=now))
    return DeviceKey(company, udid)


async def number_of(api: Harness, owner: Headers) -> int:
    (device,) = (await api.call("GET", "/crm", owner)).json()
    return int(device["id"])


async def test_with_names_also_of_what_is_deleted(
    api: Harness, settings: Settings, owner: Headers, bodies: Bodies
):
    venue = (await api.call("POST", "/region", owner, bodies.venue())).json()
    where = f"/region/{venue['id']}/beacon"
    beacon = (await api.call("POST", where, owner, bodies.beacon())).json()
    path = f"/lieu/{venue['id']}/campaign"
    first, second = [
        (await api.call("POST", path, owner, bodies.campaign())).json() for _ in range(2)
    ]
    await api.call("DELETE", f"{path}/{second['id']}", owner)
    device = await device_of(api, owner)
    outcomes = {"throttled": [first["id"]], "outside_hours": [second["id"], 999]}
    await build_decision_store(settings, api.stores.redis).keep(
        [
            DeviceDecision(
                device,
                StoredDecision(AT, AT + 1, beacon["id"], Zone.NEAR, "throttled", outcomes),
            ),
            DeviceDecision(device, StoredDecision(AT + 9, AT + 9, 999, Zone.FAR, "too_far", {})),
        ]
    )
    number = await number_of(api, owner)
    answer = await api.call("GET", f"/crm/{number}/decisions", owner)
    assert answer.status_code == 200
    assert answer.json() == [
        {
            "detected_at": "2026-11-20T21:41:09+0000",
            "decided_at": "2026-11-20T21:41:09+0000",
            "lieu": "",
            "beacon": {"id": 999, "name": ""},
            "proximity": "far",
            "reason": "too_far",
            "campaigns": [],
        },
        {
            "detected_at": "2026-11-20T22:41:00+0100",
            "decided_at": "2026-11-20T22:41:01+0100",
            "lieu": venue["name"],
            "beacon": {"id": beacon["id"], "name": beacon["name"]},
            "proximity": "near",
            "reason": "throttled",
            "campaigns": [
                {"id": first["id"], "name": first["name"], "outcome": "throttled"},
                {"id": second["id"], "name": second["name"], "outcome": "outside_hours"},
                {"id": 999, "name": "", "outcome": "outside_hours"},
            ],
        },
    ]


async def test_only_decisions_about_devices_of_the_company(
    api: Harness, settings: Settings, owner: Headers
):
    await device_of(api, owner)
    number = await number_of(api, owner)
    assert (await api.call("GET", f"/crm/{number}/decisions", owner)).json() == []
    other = await api.account()
    theirs = await device_of(api, other)
    kept = StoredDecision(AT, AT, 1, Zone.FAR, "too_far", {})
    await build_decision_store(settings, api.stores.redis).keep([DeviceDecision(theirs, kept)])
    assert (await api.call("GET", f"/crm/{number}/decisions", owner)).json() == []
    for unknown in (number, 999):
        answer = await api.call("GET", f"/crm/{unknown}/decisions", other)
        assert (answer.status_code, answer.json()["message"]) == (404, "no such device")


async def test_a_redis_that_is_down_is_reported(
    settings: Settings, passwords: Passwords, own_redis: RedisServer
):
    changed = {"redis_url": SecretStr(own_redis.url), "redis_timeout": 1.0}
    await make_schema(settings.database_url.get_secret_value())
    async with harness(settings.model_copy(update=changed), passwords) as api:
        owner = await api.account()
        await device_of(api, owner)
        number = await number_of(api, owner)
        own_redis.kill()
        answer = await api.call("GET", f"/crm/{number}/decisions", owner)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        for figures in ("hours", "reasons"):
            answer = await api.call("GET", f"/statistics/{figures}", owner)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        question = {"udid": "phone"}
        venue = (await api.call("POST", "/region", owner, Bodies().venue())).json()["id"]
        body = Bodies().campaign()
        campaign = (await api.call("POST", f"/lieu/{venue}/campaign", owner, body)).json()["id"]
        path = f"/lieu/{venue}/campaign/{campaign}/explain"
        assert (await api.call("POST", path, owner, question)).status_code == 503
        assert (await api.call("POST", path, owner, {})).status_code == 200
