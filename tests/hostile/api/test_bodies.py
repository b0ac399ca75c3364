"""Unusual bodies for every operation never lead to an internal error."""

import os
from collections.abc import AsyncIterator, Iterator

import orjson
import pytest
from starlette.requests import Request

from api.sessions.sign_in import Passwords
from engine.process.settings_sources import load_settings
from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, harness
from tests.integration.api.operations import operations
from tests.servers.schema import make_schema

FULL = "PROXIMITY_TEST_FULL" in os.environ
JSON = {"content-type": "application/json"}
# Written as they are sent: no writer of JSON makes them.
VALUES = [
    b"[" * 1000 + b"]" * 1000,
    b'{"a":' * 1000 + b"1" + b"}" * 1000,
    b"[" * 40 + b"]" * 40,
    b'"' + b"[" * 100_000 + b'"',
    b'"' + b"[" * 8000 + b"]" * 8000 + b'"',
    b'"' + b'{\\"a\\":' * 2000 + b'"',
    b"9" * 400,
    b"-9223372036854775809",
    b"18446744073709551616",
    b"1e999",
    b"-1e-999",
    b"1" * 19 + b".5",
    b'"' + b"9" * 5000 + b'"',
    b'"\\u0000"',
    b'"\\ud800"',
    b'"\\u202e\\u0007\\u001b[2J"',
    b'"' + b"x" * 200_000 + b'"',
    b"[" + b"{}," * 5000 + b"{}]",
    b'[{"id": 1e300, "name": {}, "uuid": [], "major": {}, "minor": null}]',
    b'[{"id": 99999999999999999999999, "name": "x"}]',
    b'{"key": "x", "value": ' + b"[" * 900 + b"]" * 900 + b"}",
    b'"0001-01-01T00:00:00+2359"',
    b'"9999-12-31T23:59:59-2359"',
    b'"http://[::1"',
    b'"http://a:99999999999/"',
    b'"//../../etc/passwd"',
    b"NaN",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'""',
    b"'",
]


@pytest.fixture
def bodies() -> Bodies:
    return Bodies()


@pytest.fixture(scope="module")
def passwords() -> Iterator[Passwords]:
    made = Passwords()
    yield made
    made.close()


@pytest.fixture
async def api(sqlite_url: str, redis_url: str, passwords: Passwords) -> AsyncIterator[Harness]:
    settings = load_settings(
        database_url=sqlite_url,
        redis_url=redis_url,
        secret_key="a passphrase of the test",
        connector_allow_networks="127.0.0.0/8",
        login_attempts_account=10_000,
    )
    await make_schema(sqlite_url)
    async with harness(settings, passwords) as made:
        yield made


async def test_every_field_of_every_operation(api: Harness, bodies: Bodies):
    owner = await api.account()
    venue = (await api.call("POST", "/region", owner, bodies.venue())).json()["id"]
    await api.call("POST", f"/region/{venue}/beacon", owner, bodies.beacon())
    await api.call("POST", f"/region/{venue}/geofencing", owner, bodies.geofence())
    await api.call("POST", f"/lieu/{venue}/campaign", owner, bodies.campaign())
    tried = 0
    for operation in operations(api.app):
        for name in operation.body or {}:
            if name == "password":
                continue
            # Each value meets each kind of field; with FULL each field of each operation.
            for value in VALUES if FULL else VALUES[tried % 3 :: 3]:
                others = b",".join(
                    b'"%s":%s' % (other.encode(), orjson.dumps(given))
                    for other, given in (operation.body or {}).items()
                    if other != name
                )
                content = b'{"%s":%s%s}' % (name.encode(), value, b"," + others if others else b"")
                answer = await api.client.request(
                    operation.method,
                    f"/v2{operation.filled(id=venue, uid=1)}",
                    content=content,
                    headers=owner | JSON,
                )
                shown = f"{operation} {name}={value[:40]!r}: {answer.text[:300]}"
                assert answer.status_code in (200, 201, 400, 404, 409, 413), shown
                assert answer.json() is not None, shown
                tried += 1
    assert tried > (1500 if FULL else 500)


async def test_an_unexpected_error_is_reported(api: Harness):
    """The answer is 500 with the request's id, without details of the error."""

    async def broken(request: Request) -> None:
        raise RuntimeError(f"a secret of {request.url}")

    api.app.add_api_route("/v2/broken", broken)
    answer = await api.call("GET", "/broken", {"x-request-id": "mine"})
    assert answer.status_code == 500
    assert answer.json() == {"status": "error", "message": "internal error", "code": 500}
    assert answer.headers["x-request-id"] == "mine"
