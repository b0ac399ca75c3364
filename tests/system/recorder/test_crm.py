"""From a detection to the CRM: trigger and recorder write what the interface shows."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from catalog.database import open_database
from catalog.models import Application, Company
from tests.api.process import ApiProcess, make_account
from tests.catalog.records import UUID
from tests.recorder.flood import Message
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually
from tests.system.recorder.publishing import publish
from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.world import World

UDID = "00008030-001C2D3E4F50802E"
DEVICE = {"udid": UDID, "name": "iOS", "version": "26.1", "model": "iPhone 17", "id_connector": 42}
PUSH_TOKEN = "fcm:0123"
ZONES = ("far", "near", "immediate")


async def furnish(url: str) -> None:
    """An account's company with an application, a venue, a beacon, and two campaigns at it."""
    await make_schema(url)
    database = open_database(url)
    try:
        await make_account(database)
        async with database.write.begin() as session:
            company = (await session.scalars(select(Company))).one()
            world = World(datetime.now(UTC).replace(microsecond=0))
            venue = world.venue(company, "Hall")
            beacon = world.beacon(venue, 1, uuid=UUID, major=1)
            world.campaign(venue, "always", [beacon])
            world.campaign(venue, "seldom", [beacon], delay=86_400)
            session.add_all(world.records)
            session.add(Application(company=company, name="app", type="ios", api_key="key"))
    finally:
        await database.close()


def messages(begin: datetime) -> list[Message]:
    """One authentication, then a detection of each zone, a second apart."""
    known = DEVICE | {"token_push": PUSH_TOKEN}
    signed_in = {"api_key": "key", "device": known, "ip": "192.0.2.7"}
    signed_in["authenticated_at"] = _written(begin)
    came = int(begin.timestamp() * 1000)
    found = [Message("authentications", UDID.encode(), json.dumps(signed_in).encode(), came)]
    for second, zone in enumerate(ZONES, 1):
        received = {"uuid": UUID, "major": 1, "minor": 1, "proximity": zone, "device": DEVICE}
        received |= {"detected_at": _written(begin + timedelta(seconds=second)), "ip": "192.0.2.8"}
        found.append(Message("detections", UDID.encode(), json.dumps(received).encode(), came))
    return found


def _written(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%M:%S%z")


@pytest.mark.timeout(90)
async def test_the_interface_shows_what_was_recorded(
    rig: Rig,
    topics: TopicSet,
    kafka_bootstrap: str,
    redis_url: str,
    database_url: str,
) -> None:
    await topics.create()
    await furnish(database_url)
    secret = "a passphrase of the test"
    rig.environment |= {"REDIS_URL": redis_url, "DATABASE_URL": database_url, "SECRET_KEY": secret}
    roles = rig.trigger(), rig.recorder()
    interface = ApiProcess(rig)
    await asyncio.gather(interface.until_ready(), *(role.until_ready() for role in roles))
    begin = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=10)
    await publish(kafka_bootstrap, topics.name(""), messages(begin))

    headers = await interface.sign_in()
    async with httpx.AsyncClient(base_url=interface.url, headers=headers) as client:

        async def device() -> dict[str, Any] | None:
            listed = (await client.get("/v2/crm")).json()
            done = listed and (listed[0]["nb_beacon"], listed[0]["nb_campaign"]) == (3, 4)
            return dict(listed[0]) if done else None

        listed = await eventually(device, deadline=30, what="three detections, four notifications")
        detail = (await client.get(f"/v2/crm/{listed['id']}")).json()
    fields = {key: listed[key] for key in DEVICE}
    assert fields == DEVICE
    assert detail["device"] == [listed]
    assert [(each["create_on"], each["ip"]) for each in detail["auth"]] == [
        (_written(begin), "192.0.2.7")
    ]
    traces = [(each["status"], each["create_on"], each["ip"]) for each in detail["beacon"]]
    assert traces == [
        (zone, _written(begin + timedelta(seconds=second)), "192.0.2.8")
        for second, zone in reversed(list(enumerate(ZONES, 1)))
    ]
    assert {each["lieu"] for each in detail["beacon"]} == {"Hall"}
    assert {each["beacon"]["name"] for each in detail["beacon"]} == {"beacon 1"}
    await a_bare_detection_is_completed(kafka_bootstrap, topics, listed["id"])
    for role in roles:
        await role.stop()


async def a_bare_detection_is_completed(
    kafka_bootstrap: str, topics: TopicSet, device_id: int
) -> None:
    """The notification has the push token, although the detection has only the udid."""
    bare = {"uuid": UUID, "major": 1, "minor": 1, "proximity": "near", "device": {"udid": UDID}}
    sent = 4

    async def completed() -> bool:
        nonlocal sent
        now = datetime.now(UTC)
        value = json.dumps(bare | {"detected_at": _written(now)}).encode()
        message = Message("detections", UDID.encode(), value, int(now.timestamp() * 1000))
        await publish(kafka_bootstrap, topics.name(""), [message])
        await eventually(lambda: arrived(sent + 1), what="the notification of the bare detection")
        sent += 1
        device = json.loads((await topics.read("notifications"))[-1].value)["device"]
        return bool(device == DEVICE | {"id": device_id, "token_push": PUSH_TOKEN})

    async def arrived(count: int) -> bool:
        return await topics.count("notifications") >= count

    # A copy that was made before the authentication is believed for a few seconds.
    await eventually(completed, what="id, push token and the rest are filled in")
