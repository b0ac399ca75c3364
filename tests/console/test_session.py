"""Signing in and out, and what other sites try with a visitor's browser."""

from urllib.parse import quote

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
    assert {"httponly", "samesite=lax", "path=/console"} <= set(cookie.split("; "))
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


async def test_without_sec_fetch_site_the_origin_counts(api: Harness, owner: str):
    """Host and port, as browsers send them on plain http. With TLS the cookie is for TLS alone."""
    form, plain = {"email": owner, "password": PASSWORD}, "http://console.example:8443"
    for site, origin, status in (
        *((plain, plain, 303), (plain, "http://console.example", 403), (plain, "", 403)),
        ("https://api", "https://api", 303),
    ):
        sent = {"origin": origin}
        answer = await api.client.post(f"{site}/console/sign-in", data=form, headers=sent)
        assert answer.status_code == status, origin
        cookie = answer.headers.get("set-cookie", "").lower().split("; ")
        assert ("secure" in cookie) == site.startswith("https")


async def test_no_other_site_changes_anything_or_signs_anybody_in(visitor: Visitor, owner: str):
    form = {"email": owner, "password": PASSWORD}
    tried = [each.filled(id=1, uid=1) for each in addresses() if each.method == "POST"]
    assert len(tried) > 15
    for path in ("/sign-in", *tried):
        for headers in OTHERS:
            answer = await visitor.client.post(f"/console{path}", data=form, headers=headers)
            assert answer.status_code == 403, f"{path} {headers}"
            assert "set-cookie" not in answer.headers


async def test_a_visitor_without_a_session_is_asked_to_sign_in(api: Harness):
    for address in addresses():
        path = f"/console{address.filled(id=1, uid=1)}"
        answer = await api.client.request(address.method, f"{path}?a=%26", headers=FROM_HERE)
        if address.method == "GET":
            wanted = quote(f"{path.removeprefix('/console')}?a=%26")
            assert answer.headers["location"] == f"/console/sign-in?next={wanted}"
        else:
            assert answer.headers["location"] == "/console/sign-in", address
        assert "set-cookie" not in answer.headers  # which would end the session of another tab
        part = FROM_HERE | {"hx-request": "true"}
        answer = await api.client.request(address.method, path, headers=part)
        assert answer.headers["hx-redirect"] == "/console/sign-in", address


async def test_the_sign_in_leads_to_the_page_that_was_asked_for(api: Harness, owner: str):
    seen = SeenPage((await api.client.get("/console/sign-in?next=/venues?a=1")).text)
    for password, status in (("wrong", 404), (PASSWORD, 303)):
        form = {"next": seen.field("next"), "email": owner, "password": password}
        answer = await api.client.post("/console/sign-in", data=form, headers=FROM_HERE)
        assert answer.status_code == status
        if status == 404:
            seen = SeenPage(answer.text)
    assert answer.headers["location"] == "/console/venues?a=1"


async def test_a_cookie_that_is_none_of_ours(api: Harness, visitor: Visitor):
    for cookie in ("", ".", "x", "x.y", "é.y", "AAAA." + "y" * 9000):
        headers = {b"cookie": f"proximity_session={cookie}".encode()}
        answer = await api.client.get("/console", headers=headers)
        assert answer.headers["location"] == "/console/sign-in", cookie
