"""An OIDC provider's token endpoint: client credentials in, signed tokens out, over real HTTP."""

import asyncio
import base64
import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote_plus

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

from tests.servers.http_service import Answer, HttpService, ReceivedRequest, replying

CLIENT, SECRET = "engine", "of the client: +/%"
PATH = "/realms/one/token"


class TokenKey:
    """A provider's key. Making one takes tenths of a second."""

    def __init__(self) -> None:
        self._key: RSAPrivateKey = generate_private_key(public_exponent=65537, key_size=2048)

    def write_jwks(self, path: Path) -> None:
        """What a broker needs in order to believe the provider."""
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256"}
        key |= {"n": _number(numbers.n), "e": _number(numbers.e)}
        path.write_text(json.dumps({"keys": [key]}))

    def sign(self, claims: Mapping[str, Any]) -> str:
        """A token that makes these claims."""
        header = {"alg": "RS256", "typ": "JWT", "kid": "one"}
        text = ".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
        return f"{text}.{_base64(self._key.sign(text.encode(), PKCS1v15(), SHA256()))}"


class TokenEndpointService(HttpService):
    """Grants `seconds` to `CLIENT`; `granted` is what it gave."""

    def __init__(self, key: TokenKey) -> None:
        super().__init__(self.grant)
        self.seconds = 300.0
        self.granted: list[str] = []
        self._key = key

    @property
    def address(self) -> str:
        """For KAFKA_SASL_OAUTH_TOKEN_URL."""
        return self.url(PATH)

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Kafka for a login by its tokens."""
        return {
            "SASL_MECHANISM": "OAUTHBEARER",
            "SASL_OAUTH_TOKEN_URL": self.address,
            "SASL_OAUTH_CLIENT_ID": CLIENT,
            "SASL_OAUTH_CLIENT_SECRET": SECRET,
        }

    async def grant(self, received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        """Answer with a token if the client's id and secret are right."""
        await self._answer(received)(received, writer)

    def _answer(self, received: ReceivedRequest) -> Answer:
        form = {name: values[0] for name, values in parse_qs(received.body.decode()).items()}
        if received.method != "POST" or received.target != PATH:
            return replying(404, b"<html>")
        if form.get("grant_type") != "client_credentials":
            return replying(400, {"error": "unsupported_grant_type"})
        if _login(received) != (CLIENT, SECRET):
            return replying(401, {"error": "invalid_client", "error_description": SECRET})
        now = time.time()
        claims = {"sub": CLIENT, "iat": int(now), "exp": math.ceil(now + self.seconds)}
        self.granted.append(self._key.sign(claims | {"scope": "kafka"}))
        answer = {"token_type": "Bearer", "expires_in": self.seconds}
        return replying(200, answer | {"access_token": self.granted[-1]})


def _login(received: ReceivedRequest) -> tuple[str, ...]:
    encoded = received.headers.get("authorization", "").removeprefix("Basic ")
    return tuple(unquote_plus(part) for part in base64.b64decode(encoded).decode().split(":"))


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _number(value: int) -> str:
    return _base64(value.to_bytes((value.bit_length() + 7) // 8))
