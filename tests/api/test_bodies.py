"""Requests that are refused for their body, path or parameters, and the answers to them."""

from typing import Any

import pytest

from tests.api.harness import Bodies, Harness, Headers, app_settings, error_body, harness

JSON: dict[str, str] = {"content-type": "application/json"}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """A request is refused before SQL is queried."""
    return sqlite_url


@pytest.mark.parametrize(
    ("content", "headers", "status", "place"),
    [
        (b" \n ", JSON, 400, "required; "),
        (b'{"name":\n "x",}', JSON, 400, "line 2, column "),
        (b"[]", JSON, 400, "accepted: "),
        (b'{"name": "\xff"}', JSON, 400, "line 1, "),
        (b"{}", {"content-type": "text/plain"}, 415, ""),
        (b"[]", {"content-type": "Application/JSON; version=1"}, 400, "accepted: "),
        (b'"' + b"x" * 1024 * 1024 + b'"', JSON, 413, ""),
    ],
)
async def test_bodies(
    api: Harness, owner: Headers, content: bytes, headers: Headers, status: int, place: str
):
    for path in ("/region", "/auth"):
        answer = await api.client.post(f"/v2{path}", content=content, headers=owner | headers)
        fields = error_body(answer, status).get("fields", {})
        assert fields.get("body", "").startswith(place)


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


@pytest.mark.parametrize(
    ("method", "path", "status", "fields"),
    [
        ("GET", "/nothing", 404, []),
        ("PATCH", "/region", 405, []),
        ("GET", "/statistics?from=2026-W44&to=20261120", 400, ["from", "to"]),
        ("GET", "/region/1/beacon", 404, []),
        ("GET", "/region/99999999999999999999", 400, ["id"]),
        ("GET", "/lieu/1/campaign/0", 400, ["uid"]),
        ("GET", "/region?limit=0&after=-1&search=a%00", 400, ["limit", "after", "search"]),
    ],
)
async def test_paths(
    api: Harness, owner: Headers, method: str, path: str, status: int, fields: list[str]
):
    answer = await api.call(method, path, owner)
    assert sorted(error_body(answer, status).get("fields", {})) == sorted(fields)
    assert ("allow" in answer.headers) == (status == 405)


async def test_answers_carry_ids_and_headers(api: Harness, owner: Headers):
    for given, kept in (("abc-1", True), ("two words", False)):
        answer = await api.call("GET", "/region", owner | {"x-request-id": given})
        assert (answer.headers["x-request-id"] == given) == kept
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert "access-control-allow-origin" not in answer.headers


async def test_pages_of_named_sites_may_call(
    sqlite_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
):
    ours, asked = "https://app.example", {"access-control-request-method": "PUT"}
    session = {"x-service-key": "a", "x-service-token": "b"}
    async with harness(app_settings(sqlite_url, redis_url, api_cors_origins=ours)) as api:
        monkeypatch.setattr(api.app.state.services.sessions, "find", None)
        for origin, allowed in ((ours, ours), ("https://evil.example", None)):
            preflight = await api.client.options("/v2/region", headers=asked | {"origin": origin})
            broken = await api.call("GET", "/region", session | {"origin": origin})
            assert broken.status_code == 500
            for answer in (preflight, broken):
                assert answer.headers.get("access-control-allow-origin") == allowed


BAD: dict[str, dict[str, Any]] = {
    "/region/{venue}/beacon": {"uuid": "no", "major": 65536, "minor": True, "tags": [{}]},
    "/region/{venue}/geofencing": {"latitude": 91, "longitude": True, "active": "yes"},
    "/region": {"name": "x" * 256, "address": "\x00", "with": -1, "map": 1},
    "/lieu/{venue}/campaign": {
        "format": "fax",
        "start_time": "24:00",
        "thuesday": None,
        "beacons": [{"uuid": "x"}],
        "geofencings": [{}],
        "nfcs": [True],
        "qrcodes": "x",
    },
    "/auth": {"email": 1, "password": ""},
}
REQUIRED = {
    "/region": "name address active",
    "/region/{venue}/beacon": "name uuid major minor active proximity",
    "/region/{venue}/geofencing": "name longitude latitude radius active",
    "/lieu/{venue}/campaign": "name push title format cache start end start_time end_time active "
    "monday tuesday wednesday thursday friday saturday sunday",
    "/auth": "email password",
}


@pytest.mark.parametrize("path", REQUIRED)
async def test_every_bad_and_every_missing_field_is_named(
    api: Harness, owner: Headers, venue: int, path: str
):
    where, bad = path.format(venue=venue), BAD.get(path, {})
    missing = await api.faults("POST", where, owner, {})
    assert missing == dict.fromkeys(REQUIRED[path].split(), "required, and not given")
    assert bad.keys() <= (await api.faults("POST", where, owner, bad)).keys()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"end": "2026-11-19T23:59:59+0100"}, "end"),
        ({"format": "html"}, "html"),
        ({"tags": ["x"] * 1001}, "tags"),
        ({"tuesday": True, "thuesday": False}, "tuesday"),
    ],
)
async def test_campaigns_that_contradict_themselves(
    api: Harness, owner: Headers, bodies: Bodies, venue: int, changes: Any, field: str
):
    path = f"/lieu/{venue}/campaign"
    one = f"{path}/{(await api.made(path, owner, bodies.campaign()))['id']}"
    for method, where in (("POST", path), ("PUT", one)):
        assert [*await api.faults(method, where, owner, bodies.campaign(**changes))] == [field]


async def test_secrets_are_not_quoted(api: Harness, owner: Headers, bodies: Bodies):
    body = bodies.connector(parameters="geheim", secret="ge\x00heim")
    answer = await api.call("PUT", "/connector", owner, body)
    assert set(error_body(answer, 400)["fields"]) == {"parameters", "secret"}
    assert "heim" not in answer.text


async def test_an_unexpected_error_of_signing_in(api: Harness, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(api.app.state.services.sessions, "sign_in", None)
    credentials = {"email": "a@example.org", "password": "b"}
    error_body(await api.call("POST", "/auth", json=credentials), 500)
