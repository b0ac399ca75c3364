"""Signing in and out, and what other sites try with a visitor's browser."""

import httpx
import pytest

from tests.api.harness import PASSWORD, Harness
from tests.api.process import make_account
from tests.console.visitor import SITE, SeenPage, Visitor, addresses

OWNER = "żółw@example.org"
FROM_HERE = {"sec-fetch-site": "same-origin", "origin": SITE}
OTHERS: tuple[dict[str, str], ...] = (
    {},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://api.evil.example"},
    {"sec-fetch-site": "cross-site", "origin": SITE},
    {"sec-fetch-site": "same-site", "origin": SITE},
    {"sec-fetch-site": "none"},
)


async def sign_in(api: Harness, email: str, password: str) -> httpx.Response:
    form = {"email": email, "password": password}
    return await api.client.post("/console/sign-in", data=form, headers=FROM_HERE)


@pytest.fixture
async def owner(api: Harness) -> str:
    await make_account(api.database, company="Harbour", email=OWNER, password=PASSWORD)
    return OWNER


async def test_in_and_out(api: Harness, owner: str):
    refused = await sign_in(api, owner, "guess")
    page = SeenPage(refused.text)
    assert refused.status_code == 404
    assert "No account has this e-mail address and password." in page.text
    assert page.field("email") == owner
    assert page.field("password") is None
    for _ in range(4):
        refused = await sign_in(api, "nobody@example.org", "guess")
    assert (refused.status_code, int(refused.headers["retry-after"]) > 0) == (429, True)
    answer = await sign_in(api, owner, PASSWORD)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console")
    cookie = answer.headers["set-cookie"].lower()
    assert {"httponly", "samesite=strict", "path=/console"} <= set(cookie.split("; "))
    assert "secure" not in cookie
    first = await api.client.get("/", follow_redirects=True)
    assert first.url.path == "/console"
    assert owner in first.text
    token = api.client.cookies["proximity_session"]
    assert token not in first.text
    headers = httpx.Headers({"x-service-key": owner, "x-service-token": token}, "utf-8")
    assert (await api.client.get("/v2/profile", headers=headers)).status_code == 200
    out = await api.client.post("/console/sign-out", headers=FROM_HERE)
    assert out.headers["location"] == "/console/sign-in"
    assert "proximity_session" not in api.client.cookies
    assert (await api.client.get("/v2/profile", headers=headers)).status_code == 401


async def test_the_cookie_is_for_tls_where_there_is_tls(api: Harness, owner: str):
    client = httpx.AsyncClient(transport=httpx.ASGITransport(api.app), base_url="https://api")
    async with client:
        form = {"email": owner, "password": PASSWORD}
        origin = {"origin": "https://api"}
        answer = await client.post("/console/sign-in", data=form, headers=origin)
    assert "secure" in answer.headers["set-cookie"].lower().split("; ")


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://console.example:8443", 303), ("http://console.example", 403), ("", 403)],
)
async def test_without_sec_fetch_site_the_origin_counts(
    api: Harness, owner: str, origin: str, status: int
):
    """Host and port, as browsers send them on plain http."""
    form = {"email": owner, "password": PASSWORD}
    headers = {"host": "console.example:8443", "origin": origin}
    answer = await api.client.post("/console/sign-in", data=form, headers=headers)
    assert answer.status_code == status


async def test_no_other_site_changes_anything_or_signs_anybody_in(visitor: Visitor, owner: str):
    form = {"email": owner, "password": PASSWORD}
    tried = [each.filled(id=1, uid=1) for each in addresses() if each.method == "POST"]
    assert len(tried) > 15
    for path in ("/sign-in", *tried):
        for headers in OTHERS:
            answer = await visitor.client.post(f"/console{path}", data=form, headers=headers)
            assert answer.status_code == 403, f"{path} {headers}"
            assert "set-cookie" not in answer.headers


async def test_a_visitor_without_a_session_is_redirected_to_sign_in(api: Harness):
    for address in addresses():
        path = f"/console{address.filled(id=1, uid=1)}"
        answer = await api.client.request(address.method, path, headers=FROM_HERE)
        assert answer.headers["location"] == "/console/sign-in", address
        part = FROM_HERE | {"hx-request": "true"}
        answer = await api.client.request(address.method, path, headers=part)
        assert answer.headers["hx-redirect"] == "/console/sign-in", address


async def test_a_cookie_that_is_none_of_ours(api: Harness, visitor: Visitor):
    for cookie in ("", ".", "x", "x.y", "é.y", "AAAA." + "y" * 9000):
        headers = {b"cookie": f"proximity_session={cookie}".encode()}
        answer = await api.client.get("/console", headers=headers)
        assert answer.headers["location"] == "/console/sign-in", cookie
