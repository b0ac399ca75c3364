"""Requests that are refused for their body, path or parameters, and the answers to them."""

from typing import Any

import pytest
from starlette.requests import Request

from tests.api.harness import Bodies, Harness, Headers, error_body

JSON: dict[str, str] = {"content-type": "application/json"}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """A request is refused before SQL is queried."""
    return sqlite_url


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"", JSON, 400),
        (b"{", JSON, 400),
        (b"[]", JSON, 400),
        (b'{"name": "\xff"}', JSON, 400),
        (b'{"name": "\\ud800"}', JSON, 400),
        (b"[" * 100_000, JSON, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"content-type": "application/json; charset=latin-1"}, 415),
        (b"{}", {"content-type": "application/json; charset=UTF-8"}, 400),
        (b"{}", {}, 400),
        (b'"' + b"x" * 1024 * 1024 + b'"', JSON, 413),
    ],
)
async def test_bodies(api: Harness, owner: Headers, content: bytes, headers: Headers, status: int):
    answer = await api.client.post("/v2/region", content=content, headers=owner | headers)
    error_body(answer, status)


async def test_a_body_is_read_no_further_than_the_limit(api: Harness, owner: Headers):
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 65_536
            yield b" " * 65_536

    answer = await api.client.post("/v2/region", content=endless(), headers=owner | JSON)
    error_body(answer, 413)
    assert sent < 2 * 1024 * 1024
    sent = 0
    announced = owner | JSON | {"content-length": str(2 * 1024 * 1024)}
    answer = await api.client.post("/v2/region", content=endless(), headers=announced)
    error_body(answer, 413)
    assert sent == 0


@pytest.mark.parametrize("path", ["/region", "/auth"])
async def test_a_broken_body_has_its_place(api: Harness, owner: Headers, path: str):
    for content, place in (
        (b" \n ", "required; "),
        (b'{"name":\n "x",}', "line 2, column "),
        (b"[]", "accepted: "),
    ):
        answer = await api.client.post(f"/v2{path}", content=content, headers=owner | JSON)
        assert error_body(answer, 400)["fields"]["body"].startswith(place)


@pytest.mark.parametrize(
    ("method", "path", "status", "fields"),
    [
        ("GET", "/nothing", 404, []),
        ("GET", "/region/", 404, []),
        ("PATCH", "/region", 405, []),
        ("GET", "/auth", 405, []),
        ("GET", "/region/1", 404, []),
        ("GET", "/region/1/beacon/1", 404, []),
        ("GET", "/region/1/beacon", 404, []),
        ("GET", "/lieu/1/campaign/1", 404, []),
        ("GET", "/crm/1", 404, []),
        ("GET", "/region/abc", 400, ["id"]),
        ("GET", "/region/99999999999999999999", 400, ["id"]),
        ("GET", "/lieu/1/campaign/0", 400, ["uid"]),
        ("GET", "/region?limit=x", 400, ["limit"]),
        ("GET", "/region?limit=0&after=-1", 400, ["limit", "after"]),
        ("GET", "/crm/1?limit=1001", 400, ["limit"]),
    ],
)
async def test_paths(
    api: Harness, owner: Headers, method: str, path: str, status: int, fields: list[str]
):
    answer = await api.call(method, path, owner)
    assert sorted(error_body(answer, status).get("fields", {})) == sorted(fields)
    assert ("allow" in answer.headers) == (status == 405)


async def test_answers_carry_ids_and_headers(api: Harness, owner: Headers):
    for given, kept in (("abc-1", True), ("two words", False), ("x" * 65, False)):
        answer = await api.call("GET", "/region", owner | {"x-request-id": given})
        assert (answer.headers["x-request-id"] == given) == kept
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "access-control-allow-origin" not in answer.headers


async def test_an_unexpected_error_is_reported(api: Harness):
    """The answer is 500 with the request's id, without details of the error."""

    async def broken(request: Request) -> None:
        raise RuntimeError(f"a secret of {request.url}")

    api.app.add_api_route("/v2/broken", broken)
    answer = await api.call("GET", "/broken", {"x-request-id": "mine"})
    assert error_body(answer, 500)["message"] == "internal error"
    assert answer.headers["x-request-id"] == "mine"


BAD: dict[str, dict[str, Any]] = {
    "/region/{venue}/beacon": {
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
    },
    "/region": {
        "name": "x" * 256,
        "address": "\x00",
        "active": 2,
        "with": -1,
        "height": [],
        "map": 1,
        "time_zone": "Mars/Olympus",
    },
    "/region/{venue}/geofencing": {
        "name": None,
        "longitude": 180.1,
        "latitude": -91,
        "radius": 0,
        "active": None,
    },
    "/lieu/{venue}/campaign": {
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
    },
    "/connector": {
        "name": "",
        "url": "ftp://example.org",
        "method": "PATCH",
        "auth": "cookie",
        "parameters": '[{"key": 1}]',
        "secret": "",
    },
    "/crm/1": {"test": "maybe"},
    "/auth": {"email": 1, "password": ""},
    "/profile/password": {"old_password": 1, "new_password": "short"},
}
REQUIRED = {
    "/region": "name address active",
    "/region/{venue}/beacon": "name uuid major minor active proximity",
    "/region/{venue}/geofencing": "name longitude latitude radius active",
    "/lieu/{venue}/campaign": "name push title format cache start end start_time end_time active "
    "monday tuesday wednesday thursday friday saturday sunday",
    "/connector": "name url method auth parameters",
    "/crm/1": "test",
    "/auth": "email password",
    "/profile/password": "old_password new_password",
}


@pytest.mark.parametrize("path", BAD)
async def test_every_bad_and_every_missing_field_is_named(
    api: Harness, owner: Headers, venue: int, path: str
):
    method = "PUT" if path in ("/connector", "/crm/1", "/profile/password") else "POST"
    where = path.format(venue=venue)
    bad = error_body(await api.call(method, where, owner, BAD[path]), 400)
    assert set(bad["fields"]) == set(BAD[path])
    assert all(bad["fields"].values())
    missing = error_body(await api.call(method, where, owner, {}), 400)
    assert missing["fields"] == dict.fromkeys(REQUIRED[path].split(), "required, and not given")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"end": "2026-11-19T23:59:59+0100"}, "end"),
        ({"format": "html"}, "html"),
        ({"format": "template", "template": " "}, "template"),
        ({"url": ""}, "url"),
        ({"nfcs": ["x"]}, "nfcs"),
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
    number = (await api.made(path, owner, bodies.campaign()))["id"]
    edit = bodies.campaign(format="html", url=None)
    body = error_body(await api.call("PUT", f"{path}/{number}", owner, edit), 400)
    assert list(body["fields"]) == ["html"]


async def test_secrets_are_not_quoted(api: Harness, owner: Headers, bodies: Bodies):
    body = bodies.connector(parameters="geheim", secret="ge\x00heim")
    answer = await api.call("PUT", "/connector", owner, body)
    assert set(error_body(answer, 400)["fields"]) == {"parameters", "secret"}
    assert "heim" not in answer.text
