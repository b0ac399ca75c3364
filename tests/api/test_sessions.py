"""Signing in, guessing passwords, and how sessions end."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial

import httpx
import pytest
from argon2 import Parameters, PasswordHasher, extract_parameters
from sqlalchemy import select

from catalog.models import Company, Session
from catalog.passwords import hash_password, verify_password
from tests.api.harness import PASSWORD, Harness, Headers, error_body
from tests.api.process import edit_account, make_account
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually

EMAIL = "owner@harbour.example"
NETWORK = "198.51.100.1"


@pytest.fixture
async def account(api: Harness) -> None:
    await make_account(api.database, company="Harbour", email=EMAIL, password=PASSWORD)


async def attempt(
    api: Harness, email: str = EMAIL, password: str = PASSWORD, address: str = "192.0.2.1"
) -> httpx.Response:
    """Sign in from an address."""
    transport = httpx.ASGITransport(api.app, client=(address, 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        return await client.post("/v2/auth", json={"email": email, "password": password})


async def status(api: Harness, email: str, password: str, address: str) -> int:
    return (await attempt(api, email, password, address)).status_code


async def signed_in(api: Harness) -> Headers:
    answer = await attempt(api)
    return {"x-service-key": EMAIL, "x-service-token": answer.json()["session"]["token"]}


async def profile(api: Harness, headers: Headers) -> int:
    return (await api.call("GET", "/profile", headers)).status_code


async def test_a_session(api: Harness, account: None):
    answer = await attempt(api, email=f" {EMAIL.upper()} ")
    session = answer.json()["session"]
    assert answer.json() == {"status": "success", "session": session, "code": 200}
    assert set(session) == {"token", "email", "valid"}
    valid = datetime.fromisoformat(session["valid"])
    assert timedelta(hours=23, minutes=59) < valid - datetime.now(UTC) <= timedelta(hours=24)
    headers = {"x-service-key": session["email"], "x-service-token": session["token"]}
    assert (await api.read("/profile", headers))["email"] == EMAIL
    async with api.database.write.begin() as sql:
        stored = (await sql.scalars(select(Session))).one()
        assert session["token"] not in stored.token_hash
        stored.valid = datetime.now(UTC)
    assert await profile(api, headers) == 401


async def test_failures_are_alike(api: Harness, account: None, monkeypatch: pytest.MonkeyPatch):
    """Each costs the check of a hash, and an equally expensive one: the time tells nothing."""
    checked: list[Parameters] = []

    def noted(stored: str, password: str) -> bool:
        checked.append(extract_parameters(stored))
        return verify_password(stored, password)

    monkeypatch.setattr("api.sessions.verify_password", noted)
    wrong = await attempt(api, password="wrong")
    unknown = await attempt(api, email="nobody@harbour.example")
    await edit_account(api.database, EMAIL, active=False)
    disabled = await attempt(api)
    body = {"status": "error", "error_message": "no user matches", "code": 404}
    for answer in (wrong, unknown, disabled):
        assert (answer.status_code, answer.json()) == (404, body)
    assert checked == checked[:1] * 3


async def test_failures_count_by_account_and_network_together(api: Harness, account: None):
    """The owner can sign in from elsewhere, and other users of the network into their accounts."""
    network = "2001:db8::"
    for _ in range(2):  # a success resets the count
        for number in range(2):
            assert await status(api, EMAIL, "x", f"{network}{number}") == 404
        assert await status(api, EMAIL, PASSWORD, f"{network}5") == 200
    for number in range(3):
        assert await status(api, EMAIL, "x", f"{network}{number}") == 404
    refused = await attempt(api, address=f"{network}ffff")
    error_body(refused, 429)
    assert 0 < int(refused.headers["retry-after"]) <= 300
    for elsewhere in ("2001:db8:0:1::1", "192.0.2.1"):
        assert await status(api, EMAIL, PASSWORD, elsewhere) == 200
    await make_account(api.database, company="Harbour", email="2@x.example", password=PASSWORD)
    assert await status(api, "2@x.example", PASSWORD, f"{network}1") == 200
    # An account that is not there is no different; a mapped address is no other network.
    for address in ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"):
        assert await status(api, "no@example.org", "x", address) == 404
    assert await status(api, "no@example.org", "x", "::ffff:192.0.2.1") == 429


@pytest.mark.parametrize("end", ["password", "disabled", "company", "sign out"])
async def test_how_a_session_ends(api: Harness, account: None, end: str):
    """At once, in every process; an account that is enabled again has no session."""
    headers, other = await signed_in(api), await signed_in(api)
    assert await profile(api, headers) == 200
    if end == "password":
        await edit_account(api.database, EMAIL, password_hash=hash_password("another one"))
    elif end == "disabled":
        for active in (False, True):
            await edit_account(api.database, EMAIL, active=active)
    elif end == "company":
        for active in (False, True):
            async with api.database.write.begin() as session:
                (await session.scalars(select(Company))).one().active = active
    else:
        done = await api.call("DELETE", "/auth", headers)
        assert (done.status_code, done.json()) == (200, {"status": "success", "code": 200})
    assert await profile(api, headers) == 401
    assert await profile(api, other) == (200 if end == "sign out" else 401)


async def test_changing_the_own_password(api: Harness, account: None):
    mine, other = await signed_in(api), await signed_in(api)
    new = {"old_password": PASSWORD, "new_password": "a better one"}
    wrong = await api.call("PUT", "/profile/password", mine, new | {"old_password": "x"})
    assert (wrong.status_code, list(wrong.json()["fields"])) == (400, ["old_password"])
    assert (await api.call("PUT", "/profile/password", mine, new)).status_code == 200
    assert (await profile(api, mine), await profile(api, other)) == (200, 401)
    assert (await attempt(api)).status_code == 404
    assert (await attempt(api, password="a better one")).status_code == 200
    # A stolen token guesses no password.
    for _ in range(3):
        assert (await api.call("PUT", "/profile/password", mine, new)).status_code == 400
    right = {"old_password": "a better one", "new_password": PASSWORD}
    error_body(await api.call("PUT", "/profile/password", mine, right), 429)


@pytest.mark.usefixtures("account")
class TestAtFullCost:
    """With passwords that take as long to check as in production."""

    @pytest.fixture(autouse=True)
    def _cheap_passwords(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("catalog.passwords._hasher", PasswordHasher())

    @pytest.fixture
    def database_url(self, sqlite_url: str) -> str:
        return sqlite_url

    async def test_guessing_connections_lock_out_no_other_account_of_the_network(
        self, api: Harness
    ):
        """They guess without a pause, some at one account, the others at many."""
        enough = asyncio.Event()

        async def guess(target: str) -> None:
            while not enough.is_set():
                assert await status(api, target, "guess", NETWORK) in (404, 429, 503)

        targets = [*["one@x.org"] * 5, *(f"{number}@x.org" for number in range(5))]
        guessing = [asyncio.create_task(guess(target)) for target in targets]
        await asyncio.sleep(0.5)

        async def is_let_in(address: str) -> bool:
            return await status(api, EMAIL, PASSWORD, address) == 200

        for address in (NETWORK, "192.0.2.7"):
            await eventually(partial(is_let_in, address))
        enough.set()
        await asyncio.gather(*guessing)


@pytest.mark.usefixtures("account")
class TestWithoutRedis:
    @pytest.fixture
    def redis_url(self, own_redis: RedisServer) -> str:
        return own_redis.url

    async def test_each_process_counts_alone(self, api: Harness, own_redis: RedisServer):
        own_redis.stop()
        statuses = [await status(api, EMAIL, "guess", NETWORK) for _ in range(4)]
        assert statuses == [404, 404, 404, 429]
        away = error_body(await api.call("GET", "/realtime/roles", await signed_in(api)), 503)
        assert away["message"] == "SQL or Redis does not answer; try again"
