"""Requests that are refused for their body, path or numbers, and the answers to them."""

import pytest

from tests.integration.api.harness import Harness, Headers
from tests.integration.api.refusals import error_body

UNCHECKED: dict[str, str] = {"content-type": "application/json"}


@pytest.fixture
def database_url(sqlite_url: str) -> str:
    """A request is refused before SQL is queried."""
    return sqlite_url


@pytest.fixture
async def owner(api: Harness) -> Headers:
    return await api.account()


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
    error_body(answer, status)


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
    error_body(answer, 413)
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
    error_body(answer, status)
    assert answer.headers.get("allow") == allowed


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
    body = error_body(await api.call("GET", path, owner), 400)
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
    assert error_body(answer, 400)["fields"]["body"].startswith(place)
