"""The token of a login by OAUTHBEARER: requested by the standard and renewed in time; what goes
wrong is named with where to look, and holds no secret."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from engine.kafka.login_token import LoginTokenError, LoginTokens
from engine.process.settings_sources import load_settings
from tests.servers.http_service import Answer, hanging, replying
from tests.servers.token_endpoint import SECRET, TokenEndpointService, TokenKey


@pytest.fixture(scope="module")
def key() -> TokenKey:
    return TokenKey()


@pytest.fixture
async def endpoint(key: TokenKey) -> AsyncIterator[TokenEndpointService]:
    async with TokenEndpointService(key).running() as service:
        yield service


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def tokens(endpoint: TokenEndpointService, clock: Clock | None = None, **more: Any) -> LoginTokens:
    given = {f"kafka_{name.lower()}": value for name, value in endpoint.settings.items()}
    settings = load_settings(None, kafka_security_protocol="SASL_SSL", **given, **more)
    return LoginTokens(settings, clock or Clock())


async def test_it_is_renewed_and_outlives_an_endpoint_that_is_down(
    endpoint: TokenEndpointService, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    client = tokens(endpoint, clock)
    first = await client.token()
    clock.now += 239.0
    assert await client.token() == first
    clock.now += 2.0
    second = await client.token()
    assert endpoint.granted == [first, second]
    endpoint.answer = replying(503)
    clock.now += 241.0
    assert await client.token() == second
    printed = capsys.readouterr().out
    assert "is not renewed" in printed
    assert second not in printed
    clock.now += 60.0
    with pytest.raises(LoginTokenError, match="answers 503"):
        await client.token()
    endpoint.answer = endpoint.grant
    assert await client.token() == endpoint.granted[-1]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (replying(401, b"<html>"), "answers 401 to the client 'engine'"),
        (replying(500, {"error": f"{SECRET}\n"}), "answers 500"),
        (replying(200, b"[" * 20_000), "answers with no token"),
        (hanging, "cannot be reached (TimeoutError)"),
    ],
)
async def test_each_failure_is_named(
    endpoint: TokenEndpointService,
    answer: Answer,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.kafka.login_token._SECONDS", 0.5 if answer is hanging else 30.0)
    endpoint.answer = answer
    with pytest.raises(LoginTokenError) as caught:
        await tokens(endpoint).token()
    message = str(caught.value)
    assert expected in message
    assert f"{endpoint.address} " in message
    assert "check PROXIMITY_KAFKA_SASL_OAUTH_TOKEN_URL" in message
    assert SECRET not in message
    assert "\n" not in message


async def test_tls_is_verified(key: TokenKey, tmp_path: Path) -> None:
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(file)
    async with TokenEndpointService(key).running(tls=context) as endpoint:
        with pytest.raises(LoginTokenError, match="unable to get local issuer certificate"):
            await tokens(endpoint).token()
        token = await tokens(endpoint, kafka_ssl_cafile=file).token()
    assert token == endpoint.granted[0]
