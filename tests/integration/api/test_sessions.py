"""Signing in, and how sessions end."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest
from redis import Redis
from sqlalchemy import select

from catalog.accounts import NewAccount, create_account, set_active, set_password, set_permissions
from catalog.fields.company import ALL_PERMISSIONS, AREAS
from catalog.models import AccessState, Account, Company, Session
from tests.integration.api.harness import PASSWORD, Harness, Headers, look
from tests.integration.api.statement_count import counted

EMAIL = "owner@harbour.example"


@pytest.fixture
async def account(api: Harness) -> None:
    new = NewAccount(company="Harbour", email=EMAIL, password=PASSWORD, permission=ALL_PERMISSIONS)
    await create_account(api.database, new, create_company=True, now=datetime.now(UTC))


async def attempt(
    api: Harness, email: str = EMAIL, password: str = PASSWORD, address: str = "192.0.2.1"
) -> httpx.Response:
    """Sign in from an address."""
    transport = httpx.ASGITransport(api.app, client=(address, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        return await client.post("/v2/auth", json={"email": email, "password": password})


async def signed_in(api: Harness) -> Headers:
    answer = await attempt(api)
    return {"x-service-key": EMAIL, "x-service-token": answer.json()["session"]["token"]}


async def test_a_session(api: Harness, account: None):
    answer = await attempt(api, email=f" {EMAIL.upper()} ")
    assert answer.status_code == 200
    session = answer.json()["session"]
    assert answer.json() == {"status": "success", "session": session, "code": 200}
    assert set(session) == {"token", "email", "valid"}
    valid = datetime.fromisoformat(session["valid"])
    assert timedelta(hours=23, minutes=59) < valid - datetime.now(UTC) <= timedelta(hours=24)
    headers = {"x-service-key": session["email"], "x-service-token": session["token"]}
    assert (await api.call("GET", "/profile", headers)).json()["email"] == EMAIL
    async with api.database.read() as sql:
        stored = (await sql.scalars(select(Session))).one()
    assert session["token"] not in stored.token_hash


async def test_failures_are_alike(api: Harness, account: None):
    wrong = await attempt(api, password="wrong")
    unknown = await attempt(api, email="nobody@harbour.example")
    await set_active(api.database, EMAIL, active=False)
    disabled = await attempt(api)
    body = {"status": "error", "error_message": "no user matches", "code": 404}
    for answer in (wrong, unknown, disabled):
        assert (answer.status_code, answer.json()) == (404, body)


async def test_failures_count_by_account_and_network_together(api: Harness, account: None):
    """The owner can sign in from elsewhere, and other users of the network into their accounts."""
    network = "2001:db8::"
    for number in range(3):
        wrong = await attempt(api, password="x", address=f"{network}{number}")
        assert wrong.status_code == 404
    refused = await attempt(api, address=f"{network}ffff")
    assert refused.status_code == 429
    assert refused.json().keys() == {"status", "error_message", "code"}
    assert 0 < int(refused.headers["retry-after"]) <= 300
    for elsewhere in ("2001:db8:0:1::1", "192.0.2.1"):
        assert (await attempt(api, address=elsewhere)).status_code == 200
    other = "second@harbour.example"
    new = NewAccount(company="Harbour", email=other, password=PASSWORD, permission={})
    await create_account(api.database, new, create_company=False, now=datetime.now(UTC))
    assert (await attempt(api, email=other, address=f"{network}1")).status_code == 200
    # An account that is not there is no different.
    for _ in range(3):
        assert (await attempt(api, email="no@example.org")).status_code == 404
    assert (await attempt(api, email="no@example.org")).status_code == 429


async def test_a_mapped_address_is_no_other_network(api: Harness, account: None):
    for address in ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"):
        assert (await attempt(api, password="x", address=address)).status_code == 404
    assert (await attempt(api, address="::ffff:192.0.2.1")).status_code == 429


async def test_success_counts_for_nothing(api: Harness, account: None):
    for _ in range(4):
        assert (await attempt(api, password="x")).status_code == 404
        assert (await attempt(api)).status_code == 200


async def test_counters_end(api: Harness, account: None, redis_url: str):
    await attempt(api, password="x")
    with Redis.from_url(redis_url) as redis:
        keys = redis.keys("proximity:login:*")
        assert len(keys) == 1
        assert all(0 < redis.pttl(key) <= 300_000 for key in keys)


async def test_a_session_that_is_known_costs_no_query(api: Harness, account: None):
    headers = await signed_in(api)
    await api.call("GET", "/profile", headers)
    with counted(api.database) as statements:
        refused = await api.call("PUT", "/connector", headers, {})
    assert (refused.status_code, statements) == (400, [])


@pytest.mark.parametrize("end", ["password", "disabled", "company", "deleted"])
async def test_how_a_session_ends(api: Harness, account: None, end: str):
    headers = await signed_in(api)
    assert (await api.call("GET", "/profile", headers)).status_code == 200
    if end == "password":
        await set_password(api.database, EMAIL, "another one")
    elif end == "disabled":
        await set_active(api.database, EMAIL, active=False)
    else:
        async with api.database.write.begin() as session:
            company = (await session.scalars(select(Company))).one()
            company.active = False
            if end == "deleted":
                await session.delete((await session.scalars(select(Account))).one())
    await look(api.revision)
    assert (await api.call("GET", "/profile", headers)).status_code == 401


@pytest.mark.parametrize("by", ["account", "company"])
async def test_sessions_from_before_a_block_stay_ended(api: Harness, account: None, by: str):
    """An account that is enabled again has no session."""
    headers = await signed_in(api)
    for active in (False, True):
        if by == "account":
            await set_active(api.database, EMAIL, active=active)
        else:
            async with api.database.write.begin() as session:
                (await session.scalars(select(Company))).one().active = active
        await look(api.revision)
    assert (await api.call("GET", "/profile", headers)).status_code == 401
    assert (await api.call("GET", "/profile", await signed_in(api))).status_code == 200


async def test_signing_out(api: Harness, account: None):
    """The session of the request ends, at once and everywhere; no other does."""
    mine, other = await signed_in(api), await signed_in(api)
    for headers in (mine, other):
        assert (await api.call("GET", "/profile", headers)).status_code == 200
    before = await revision(api)
    answer = await api.call("DELETE", "/auth", mine)
    assert (answer.status_code, answer.json()) == (200, {"status": "success", "code": 200})
    assert (await api.call("GET", "/profile", mine)).status_code == 401
    assert await revision(api) == before + 1
    assert (await api.call("DELETE", "/auth", mine)).status_code == 401
    await look(api.revision)
    assert (await api.call("GET", "/profile", other)).status_code == 200


async def test_changing_the_own_password(api: Harness, account: None):
    mine, other = await signed_in(api), await signed_in(api)
    new = {"old_password": PASSWORD, "new_password": "a better one"}
    wrong = await api.call("PUT", "/profile/password", mine, new | {"old_password": "x"})
    assert (wrong.status_code, list(wrong.json()["fields"])) == (400, ["old_password"])
    changed = await api.call("PUT", "/profile/password", mine, new)
    assert (changed.status_code, changed.json()) == (200, {"status": "success", "code": 200})
    await look(api.revision)
    assert (await api.call("GET", "/profile", mine)).status_code == 200
    assert (await api.call("GET", "/profile", other)).status_code == 401
    assert (await attempt(api)).status_code == 404
    assert (await attempt(api, password="a better one")).status_code == 200


async def test_a_stolen_token_guesses_no_password(api: Harness, account: None):
    headers = await signed_in(api)
    body = {"old_password": "guess", "new_password": "a better one"}
    for _ in range(3):
        assert (await api.call("PUT", "/profile/password", headers, body)).status_code == 400
    answer = await api.call("PUT", "/profile/password", headers, body | {"old_password": PASSWORD})
    assert answer.status_code == 429
    assert answer.json().keys() == {"status", "message", "code"}


async def revision(api: Harness) -> int:
    async with api.database.read() as session:
        return (await session.scalars(select(AccessState.revision))).one()


async def test_a_password_change_ends_sessions_for_good(api: Harness, account: None):
    await signed_in(api)
    await set_password(api.database, EMAIL, "another one")
    async with api.database.read() as session:
        assert (await session.scalars(select(Session))).all() == []
    assert (await attempt(api)).status_code == 404


async def test_a_session_ends_in_time(api: Harness, account: None):
    headers = await signed_in(api)
    async with api.database.write.begin() as session:
        (await session.scalars(select(Session))).one().valid = datetime.now(UTC)
    assert (await api.call("GET", "/profile", headers)).status_code == 401
    # The next one to sign in clears up.
    await attempt(api)
    async with api.database.read() as session:
        assert len((await session.scalars(select(Session))).all()) == 1


async def test_permissions_change_under_a_session(api: Harness, account: None):
    headers = await signed_in(api)
    assert (await api.call("GET", "/region", headers)).status_code == 200
    levels = await set_permissions(api.database, EMAIL, {"region": 0})
    assert levels == dict.fromkeys(AREAS, 2) | {"region": 0}
    await look(api.revision)
    assert (await api.call("GET", "/region", headers)).status_code == 403
