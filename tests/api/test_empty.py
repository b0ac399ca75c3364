"""Empty fields: a text is "", a number or a time null."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from catalog.models import AuthenticationTrace, DetectionTrace, Device
from tests.api.harness import Bodies, Harness, Headers

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
# The numbers and times that may be missing.
MAY_BE_NULL = {"width", "height", "x", "y", "expire_on"}
OPTIONAL = ("width", "height", "image", "time_zone", "x", "y", "color", "url")


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


async def test_no_text_is_null(api: Harness, owner: Headers, bodies: Bodies):
    nothing = dict.fromkeys(OPTIONAL)
    venue = (await api.made("/region", owner, bodies.venue(**nothing)))["id"]
    campaign = bodies.campaign(**nothing, format="connector", tags=["entrance"])
    inside = {
        f"/region/{venue}/beacon": bodies.beacon(**nothing),
        f"/region/{venue}/geofencing": bodies.geofence(),
        f"/lieu/{venue}/campaign": campaign,
        "/profile/application": {"name": "app", "type": "ios"},
    }
    for path, body in inside.items():
        await api.made(path, owner, body)
    company = await api.company_of(owner)
    device = Device(company_id=company, udid="phone", create_on=NOW, update_on=NOW)
    await api.add(device)
    of: dict[str, Any] = {"device_id": device.id, "create_on": NOW}
    await api.add(
        DetectionTrace(**of, venue_id=venue, beacon_id=1, status="near"),
        DetectionTrace(**of, venue_id=99, beacon_id=99, status="near"),
        AuthenticationTrace(**of, application_id=1),
    )
    seen: set[str] = set()
    for path in (*inside, "/profile", "/crm", f"/crm/{device.id}", f"/region/{venue}"):
        seen |= set(nulls(await api.read(path, owner)))
    assert seen == MAY_BE_NULL
