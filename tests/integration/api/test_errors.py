"""What is refused, and how it is told."""

from typing import Any

import pytest

from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, Headers

UNCHECKED: dict[str, str] = {"content-type": "application/json"}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """What is refused is refused before SQL is asked."""
    return sqlite_url


@pytest.fixture
async def owner(api: Harness) -> Headers:
    return await api.account()


@pytest.fixture
async def venue(api: Harness, owner: Headers, bodies: Bodies) -> int:
    return int((await api.call("POST", "/region", owner, bodies.venue())).json()["id"])


def told(answer: Any, status: int) -> dict[str, Any]:
    """The body of an error, whose shape is checked."""
    assert answer.status_code == status, answer.text
    body = dict(answer.json())
    signing_in = answer.request.url.path == "/v2/auth" and answer.request.method == "POST"
    text = "error_message" if signing_in else "message"
    assert set(body) - {"fields"} == {"status", text, "code"}
    assert (body["status"], body["code"]) == ("error", status)
    return body


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"", UNCHECKED, 400),
        (b"{", UNCHECKED, 400),
        (b"[]", UNCHECKED, 400),
        (b"null", UNCHECKED, 400),
        (b'{"name": "\xff"}', UNCHECKED, 400),
        (b'{"name": "\\ud800"}', UNCHECKED, 400),
        (b"[" * 100_000, UNCHECKED, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"content-type": "application/x-www-form-urlencoded"}, 415),
        (b"{}", {"content-type": "application/json; charset=latin-1"}, 415),
        (b"{}", {"content-type": "application/json; charset=UTF-8"}, 400),
        (b"{}", {}, 400),
        (b'"' + b"x" * 1024 * 1024 + b'"', UNCHECKED, 413),
    ],
)
async def test_bodies(api: Harness, owner: Headers, content: bytes, headers: Headers, status: int):
    answer = await api.client.post("/v2/region", content=content, headers=owner | headers)
    told(answer, status)


async def test_a_body_without_length_is_read_no_further_than_the_limit(
    api: Harness, owner: Headers
):
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 65_536
            yield b" " * 65_536

    answer = await api.client.post("/v2/region", content=endless(), headers=owner | UNCHECKED)
    told(answer, 413)
    assert sent < 2 * 1024 * 1024


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("GET", "/nothing", 404, None),
        ("GET", "/region/", 404, None),
        ("PATCH", "/region", 405, "GET, POST"),
        ("PATCH", "/region/1", 405, "DELETE, GET, PUT"),
        ("GET", "/auth", 405, "DELETE, POST"),
        ("PATCH", "/region/1/beacon/1", 405, "DELETE, GET, PUT"),
        ("GET", "/region/1/beacon/1", 404, None),
        ("GET", "/region/abc", 400, None),
        ("GET", "/region/0", 400, None),
        ("GET", "/region/99999999999999999999", 400, None),
        ("GET", "/region?limit=x", 400, None),
        ("GET", "/region?limit=0", 400, None),
        ("GET", "/region?after=-1", 400, None),
        ("GET", "/crm/1?limit=1001", 400, None),
        ("GET", "/region/1", 404, None),
        ("GET", "/region/1/beacon", 404, None),
        ("GET", "/lieu/1/campaign/1", 404, None),
        ("GET", "/crm/1", 404, None),
    ],
)
async def test_paths(
    api: Harness, owner: Headers, method: str, path: str, status: int, allowed: str | None
):
    answer = await api.call(method, path, owner)
    told(answer, status)
    assert answer.headers.get("allow") == allowed


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
    body_told = told(await api.call(method, path.format(venue=venue), owner, body), 400)
    assert set(body_told["fields"]) == set(body)
    assert all("accepted: " in message for message in body_told["fields"].values())


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
async def test_what_is_required(
    api: Harness, owner: Headers, venue: int, method: str, path: str, required: str
):
    body = told(await api.call(method, path.format(venue=venue), owner, {}), 400)
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
    body = told(await api.call("POST", path, owner, bodies.campaign(**changes)), 400)
    assert list(body["fields"]) == [field]


async def test_an_edit_is_checked_with_what_is_stored(
    api: Harness, owner: Headers, bodies: Bodies, venue: int
):
    path = f"/lieu/{venue}/campaign"
    number = (await api.call("POST", path, owner, bodies.campaign())).json()["id"]
    edit = bodies.campaign(format="html", url=None)
    body = told(await api.call("PUT", f"{path}/{number}", owner, edit), 400)
    assert list(body["fields"]) == ["html"]


async def test_secrets_are_not_quoted(api: Harness, owner: Headers, bodies: Bodies):
    body = bodies.connector(parameters="geheim", secret="ge\x00heim")
    answer = await api.call("PUT", "/connector", owner, body)
    assert set(told(answer, 400)["fields"]) == {"parameters", "secret"}
    assert "heim" not in answer.text


async def test_answers_carry_ids_and_headers(api: Harness, owner: Headers):
    for given, kept in (("abc-1", True), ("two words", False), ("x" * 65, False)):
        answer = await api.call("GET", "/region", owner | {"x-request-id": given})
        assert (answer.headers["x-request-id"] == given) == kept
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    ("path", "name", "lowest", "highest"),
    [
        ("/region?limit=0", "limit", 1, 2**63 - 1),
        ("/region?limit=x", "limit", 1, 2**63 - 1),
        ("/region?limit=", "limit", 1, 2**63 - 1),
        ("/region?limit=1.5", "limit", 1, 2**63 - 1),
        ("/region?after=-1", "after", 0, 2**63 - 1),
        ("/crm/1?limit=1001", "limit", 1, 1000),
        ("/region/abc", "id", 1, 2**63 - 1),
        ("/lieu/1/campaign/0", "uid", 1, 2**63 - 1),
    ],
)
async def test_numbers_are_named_as_they_are_written(
    api: Harness, owner: Headers, path: str, name: str, lowest: int, highest: int
):
    """By their names in the request, with the limits that hold there."""
    body = told(await api.call("GET", path, owner), 400)
    accepted = f"accepted: a whole number from {lowest} to {highest}"
    assert (body["message"], body["fields"]) == (f"not accepted: {name}", {name: accepted})


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", "required; "),
        (b" \n ", "required; "),
        (b'{"name":\n "x",}', "line 2, column "),
        (b"[]", "accepted: "),
    ],
)
@pytest.mark.parametrize("path", ["/region", "/auth"])
async def test_a_broken_body_has_its_place(
    api: Harness, owner: Headers, path: str, content: bytes, place: str
):
    answer = await api.client.post(f"/v2{path}", content=content, headers=owner | UNCHECKED)
    assert told(answer, 400)["fields"]["body"].startswith(place)
