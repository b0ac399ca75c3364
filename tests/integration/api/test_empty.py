"""Empty fields: a text is "", a number or a time null, and both can be sent back."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import select

from api.openapi.document import document
from catalog.models import (
    Account,
    AuditEntry,
    AuthenticationTrace,
    Beacon,
    Campaign,
    DetectionTrace,
    Device,
    Venue,
)
from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, Headers

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
# The numbers and times that may be missing.
MAY_BE_NULL = {"width", "height", "x", "y", "expire_on"}
OPTIONAL = ("width", "height", "image", "time_zone", "x", "y", "color", "url")


@pytest.fixture
async def owner(api: Harness) -> Headers:
    return await api.account()


@pytest.fixture
async def paths(api: Harness, owner: Headers, bodies: Bodies) -> list[str]:
    """The answers of records with only required fields."""
    nothing = dict.fromkeys(OPTIONAL)
    venue = (await api.call("POST", "/region", owner, bodies.venue(**nothing))).json()["id"]
    beacon = bodies.beacon(**nothing)
    campaign = bodies.campaign(**nothing, format="connector", tags=["entrance"])
    for path, body in (
        (f"/region/{venue}/beacon", beacon),
        (f"/region/{venue}/geofencing", bodies.geofence()),
        (f"/lieu/{venue}/campaign", campaign),
        ("/profile/application", {"name": "app", "type": "ios"}),
    ):
        made = await api.call("POST", path, owner, body)
        assert made.status_code == 201, made.text
    async with api.database.write.begin() as session:
        company = await session.scalar(
            select(Account.company_id).where(Account.email == owner["x-service-key"])
        )
        device = Device(company_id=company, udid="phone", create_on=NOW, update_on=NOW)
        session.add(device)
        await session.flush()
        of = {"device_id": device.id, "create_on": NOW}
        session.add(DetectionTrace(**of, venue_id=venue, beacon_id=1, status="near"))
        session.add(DetectionTrace(**of, venue_id=99, beacon_id=99, status="near"))
        session.add(AuthenticationTrace(**of, application_id=1))
    return [
        "/profile",
        "/profile/application",
        "/crm",
        "/crm/1",
        "/region",
        f"/region/{venue}",
        f"/region/{venue}/beacon",
        f"/region/{venue}/beacon/1",
        f"/region/{venue}/geofencing",
        f"/lieu/{venue}/campaign",
        f"/lieu/{venue}/campaign/1",
    ]


def nulls(node: Any, name: str = "") -> Iterator[str]:
    """The names of null fields in an answer."""
    if node is None:
        yield name
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from nulls(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from nulls(value, name)


async def test_no_text_is_null(api: Harness, owner: Headers, paths: list[str]):
    seen: set[str] = set()
    for path in paths:
        answer = await api.call("GET", path, owner)
        assert answer.status_code == 200, path
        seen |= set(nulls(answer.json()))
        assert set(nulls(answer.json())) <= MAY_BE_NULL, path
    assert seen == MAY_BE_NULL


async def test_an_answer_can_be_sent_back_unchanged(api: Harness, owner: Headers, paths: list[str]):
    """Sending an answer back changes nothing."""

    async def kept() -> list[Any]:
        async with api.database.read() as session:
            return [
                (await session.execute(select(*kind.__table__.columns))).all()
                for kind in (Venue, Beacon, Campaign, AuditEntry)
            ]

    before = await kept()
    for path in paths[5], paths[7], paths[10]:
        read = (await api.call("GET", path, owner)).json()
        back = await api.call("PUT", path, owner, read)
        assert (back.status_code, back.json()) == (200, read)
    assert await kept() == before


async def test_the_document_says_so(api: Harness):
    schemas = document(api.app, "0")["components"]["schemas"]
    inputs = {name for name in schemas if name.endswith(("Input", "Create", "Edit", "Change"))}
    found = [
        f"{name}.{field}"
        for name, schema in schemas.items()
        if name not in inputs
        for field, node in schema.get("properties", {}).items()
        if node.get("nullable") and node["type"] == "string" and "example" not in node
    ]
    assert found == []
