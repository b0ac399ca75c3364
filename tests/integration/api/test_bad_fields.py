"""Every field with a bad value is named, with what it accepts."""

from typing import Any

import pytest

from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, Headers
from tests.integration.api.refusals import error_body


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """A request is refused before SQL is queried."""
    return sqlite_url


@pytest.fixture
async def owner(api: Harness) -> Headers:
    return await api.account()


@pytest.fixture
async def venue(api: Harness, owner: Headers, bodies: Bodies) -> int:
    return int((await api.call("POST", "/region", owner, bodies.venue())).json()["id"])


BAD_BEACON = {
    "name": "",
    "uuid": "not one",
    "major": 65536,
    "minor": "x",
    "active": "yes",
    "proximity": "touching",
    "x": 2**31,
    "y": 1.5,
    "color": "no colour at all",
    "tags": [{}],
}
BAD_VENUE = {
    "name": "x" * 256,
    "address": "\x00",
    "active": 2,
    "with": -1,
    "height": [],
    "map": 1,
    "time_zone": "Mars/Olympus",
}
BAD_GEOFENCE = {
    "name": None,
    "longitude": 180.1,
    "latitude": -91,
    "radius": 0,
    "active": None,
}
BAD_CAMPAIGN = {
    "name": " ",
    "hash": 1,
    "push": "",
    "title": None,
    "format": "fax",
    "template": 1,
    "url": "javascript:alert(1)",
    "html": "\x00",
    "background": "#12",
    "color": "#ggg",
    "cache": "fortnight",
    "start": "2026-02-30T00:00:00+0100",
    "end": "tomorrow",
    "start_time": "24:00",
    "end_time": "24:01",
    "active": "",
    "monday": 7,
    "thuesday": None,
    "wednesday": "x",
    "thursday": [],
    "friday": {},
    "saturday": -1,
    "sunday": 0.5,
    "beacons": [{"uuid": "x"}],
    "geofencings": [{}],
    "nfcs": {},
    "qrcodes": "x",
    "tags": [{"name": ""}],
}
BAD_CONNECTOR = {
    "name": "",
    "url": "ftp://example.org",
    "method": "PATCH",
    "auth": "cookie",
    "parameters": '[{"key": 1}]',
    "secret": "",
}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/region", BAD_VENUE),
        ("PUT", "/region/{venue}", BAD_VENUE),
        ("POST", "/region/{venue}/beacon", BAD_BEACON),
        ("POST", "/region/{venue}/geofencing", BAD_GEOFENCE),
        ("POST", "/lieu/{venue}/campaign", BAD_CAMPAIGN),
        ("PUT", "/lieu/{venue}/campaign/1", BAD_CAMPAIGN),
        ("PUT", "/connector", BAD_CONNECTOR),
        ("PUT", "/crm/1", {"test": "maybe"}),
        ("POST", "/auth", {"email": 1, "password": ""}),
        ("PUT", "/profile/password", {"old_password": 1, "new_password": "short"}),
    ],
)
async def test_every_bad_field_is_named(
    api: Harness, owner: Headers, venue: int, method: str, path: str, body: dict[str, Any]
):
    body_error = error_body(await api.call(method, path.format(venue=venue), owner, body), 400)
    assert set(body_error["fields"]) == set(body)
    assert all("accepted: " in message for message in body_error["fields"].values())


@pytest.mark.parametrize(
    ("method", "path", "required"),
    [
        ("POST", "/region", "name address active"),
        ("POST", "/region/{venue}/beacon", "name uuid major minor active proximity"),
        ("POST", "/region/{venue}/geofencing", "name longitude latitude radius active"),
        (
            "POST",
            "/lieu/{venue}/campaign",
            "name push title format cache start end start_time end_time active "
            "monday tuesday wednesday thursday friday saturday sunday",
        ),
        (
            "PUT",
            "/lieu/{venue}/campaign/1",
            "name push title format cache start end start_time end_time active",
        ),
        ("PUT", "/connector", "name url method auth parameters"),
        ("POST", "/auth", "email password"),
        ("PUT", "/profile/password", "old_password new_password"),
        ("PUT", "/crm/1", "test"),
    ],
)
async def test_required_fields_are_named(
    api: Harness, owner: Headers, venue: int, method: str, path: str, required: str
):
    body = error_body(await api.call(method, path.format(venue=venue), owner, {}), 400)
    assert body["fields"] == dict.fromkeys(required.split(), "required, and not given")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"end": "2026-11-19T23:59:59+0100"}, "end"),
        ({"format": "html"}, "html"),
        ({"format": "template", "template": " "}, "template"),
        ({"url": ""}, "url"),
        ({"url": "www.example.com"}, "url"),
        ({"nfcs": [[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}, "nfcs"),
        ({"tags": ["x"] * 1001}, "tags"),
        ({"tuesday": True, "thuesday": False}, "tuesday"),
    ],
)
async def test_campaigns_that_contradict_themselves(
    api: Harness, owner: Headers, bodies: Bodies, venue: int, changes: Any, field: str
):
    path = f"/lieu/{venue}/campaign"
    body = error_body(await api.call("POST", path, owner, bodies.campaign(**changes)), 400)
    assert list(body["fields"]) == [field]


async def test_an_edit_is_checked_with_what_is_stored(
    api: Harness, owner: Headers, bodies: Bodies, venue: int
):
    path = f"/lieu/{venue}/campaign"
    number = (await api.call("POST", path, owner, bodies.campaign())).json()["id"]
    edit = bodies.campaign(format="html", url=None)
    body = error_body(await api.call("PUT", f"{path}/{number}", owner, edit), 400)
    assert list(body["fields"]) == ["html"]


async def test_secrets_are_not_quoted(api: Harness, owner: Headers, bodies: Bodies):
    body = bodies.connector(parameters="geheim", secret="ge\x00heim")
    answer = await api.call("PUT", "/connector", owner, body)
    assert set(error_body(answer, 400)["fields"]) == {"parameters", "secret"}
    assert "heim" not in answer.text
