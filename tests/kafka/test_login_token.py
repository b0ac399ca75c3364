"""The token of a login by OAUTHBEARER: requested by the standard, shared, renewed in time;
what goes wrong is named with where to look, and holds no secret."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from engine.kafka.errors import LoginTokenError
from engine.kafka.login_token import SharedTokenProvider, TokenEndpoint
from tests.servers.http_service import Answer, hanging, hanging_up, replying
from tests.servers.token_endpoint import (
    CLIENT,
    PATH,
    SECRET,
    TokenEndpointService,
    TokenKey,
    token_endpoint,
)

OF = "PROXIMITY_KAFKA_SASL_OAUTH_"


@pytest.fixture(scope="module")
def key() -> TokenKey:
    return TokenKey()


@pytest.fixture
async def endpoint(key: TokenKey) -> AsyncIterator[TokenEndpointService]:
    async with token_endpoint(key) as service:
        yield service


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def client(url: str, **changed: Any) -> TokenEndpoint:
    return replace(TokenEndpoint(url, CLIENT, SECRET, deadline=30.0), **changed)


def provider(url: str, clock: Clock) -> SharedTokenProvider:
    return SharedTokenProvider(client(url), clock=clock)


async def refused(url: str, **changed: Any) -> LoginTokenError:
    with pytest.raises(LoginTokenError) as caught:
        await client(url, **changed).fetch()
    message = str(caught.value)
    assert "\n" not in message
    assert SECRET not in message
    return caught.value


async def test_the_standards_request(endpoint: TokenEndpointService) -> None:
    token = await client(endpoint.url, scope="read write").fetch()
    assert (token.text, token.seconds) == (endpoint.granted[0], 300.0)
    assert SECRET not in repr(client(endpoint.url))
    assert token.text not in repr(token)
    (received,) = endpoint.requested
    assert received.body == b"grant_type=client_credentials&scope=read+write"
    assert received.headers["content-type"] == "application/x-www-form-urlencoded"


async def test_the_query_of_the_url_is_kept(endpoint: TokenEndpointService) -> None:
    endpoint.instead = replying(200, {"access_token": "a.b-c_d~e+f/g=="})
    token = await client(f"{endpoint.url}?p=policy").fetch()
    assert token.text == "a.b-c_d~e+f/g=="
    assert token.seconds == 60.0  # where the answer does not say
    assert endpoint.requested[0].target == f"{PATH}?p=policy"


async def test_callers_share_a_token_even_if_one_is_cancelled(
    endpoint: TokenEndpointService,
) -> None:
    shared = provider(endpoint.url, Clock())
    impatient = asyncio.create_task(shared.token())
    patient = [asyncio.create_task(shared.token()) for _ in range(5)]
    await asyncio.sleep(0)
    impatient.cancel()
    assert await asyncio.gather(*patient) == endpoint.granted * 5
    another_loop = await asyncio.to_thread(lambda: asyncio.run(shared.token()))
    assert [another_loop, await shared.token()] == endpoint.granted * 2


async def test_it_is_renewed_before_it_expires(endpoint: TokenEndpointService) -> None:
    clock = Clock()
    shared = provider(endpoint.url, clock)
    first = await shared.token()
    clock.now += 239.0
    assert await shared.token() == first
    clock.now += 2.0
    await shared.token()
    assert len(endpoint.granted) == 2


async def test_a_good_token_outlives_an_endpoint_that_is_down(
    endpoint: TokenEndpointService, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    shared = provider(endpoint.url, clock)
    first = await shared.token()
    endpoint.instead = replying(503)
    clock.now += 241.0
    assert await shared.token() == await shared.token() == first
    assert len(endpoint.requested) == 2  # not again for a few seconds
    clock.now += 11.0
    assert await shared.token() == first
    assert len(endpoint.requested) == 3
    printed = capsys.readouterr().out
    assert printed.count("cannot be renewed") == 2
    assert first not in printed
    clock.now += 60.0
    with pytest.raises(LoginTokenError, match="it answers 503"):
        await shared.token()
    endpoint.instead = None
    assert await shared.token() == endpoint.granted[-1]


@pytest.mark.parametrize(
    ("answer", "expected", "certain"),
    [
        (replying(400, {"error": "invalid_scope"}), f"check {OF}SCOPE", True),
        (replying(401, b"<html>"), "refuses the client 'engine' (401)", True),
        (replying(404, b"<html>"), f"it answers 404: check {OF}TOKEN_URL", True),
        (replying(429, {"error": "slow_down"}), "it answers 429 slow_down", False),
        (replying(500, {"error": f"{SECRET}\n"}), "it answers 500", False),
        (replying(200, {"access_token": "a\x01b"}), "answers with no token", False),
        (replying(200, {"access_token": "a", "expires_in": 0}), "with no token", False),
        (replying(200, b"[" * 20_000), "answers with no token", False),
        (replying(200, b" " * 70_000), "is no token endpoint", False),
        (hanging_up, "is no token endpoint", False),
        (hanging, "does not answer within 0.5 s", False),
    ],
)
async def test_each_failure_is_named(
    endpoint: TokenEndpointService, answer: Answer, expected: str, certain: bool
) -> None:
    endpoint.instead = answer
    error = await refused(endpoint.url, deadline=0.5 if answer is hanging else 30.0)
    assert expected in str(error)
    assert endpoint.url in str(error)
    assert error.certain is certain


async def test_a_wrong_secret_and_a_wrong_address(endpoint: TokenEndpointService) -> None:
    error = await refused(endpoint.url, secret="another")
    assert "refuses the client 'engine' (401 invalid_client)" in str(error)
    assert "another" not in str(error)
    assert "cannot be reached (" in str(await refused("http://no-such-host.invalid/token"))


async def test_tls_is_verified(key: TokenKey, tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(file)
    async with token_endpoint(key, tls=context) as endpoint:
        error = await refused(endpoint.url)
        assert (
            "is refused (unable to get local issuer certificate): check PROXIMITY_KAFKA_SSL_CAFILE"
            in str(error)
        )
        assert error.certain
        token = await client(endpoint.url, ca_file=file).fetch()
    assert token.text == endpoint.granted[0]
