"""Requests the token for a login by OAUTHBEARER from an OIDC provider's token endpoint.

The grant is client credentials (RFC 6749 4.4). No message contains a token or a secret.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Annotated
from urllib.parse import quote_plus

import httpx
import msgspec
import structlog
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaError

from engine.process.failures import describe
from engine.process.settings import PREFIX, Settings

log = structlog.get_logger(__name__)

_SECONDS = 5.0  # deadline of one request
_DEFAULT_SECONDS = 60.0
# A token is renewed after this share of its lifetime, as Kafka's own clients do it.
_RENEWED_AFTER = 0.8


class LoginTokenError(KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """There is no token for the login at Kafka; the message names the settings to check.

    It is a KafkaError, so aiokafka retries as if a broker had refused the login for now.
    """

    retriable = True


class _Reply(msgspec.Struct):
    # RFC 6750: any other character in a token would end the login message early.
    access_token: Annotated[str, msgspec.Meta(pattern=r"^[-A-Za-z0-9._~+/]+=*$")]
    expires_in: float = _DEFAULT_SECONDS


class LoginTokens(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """The tokens of one Kafka client."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._url = settings.kafka_sasl_oauth_token_url or ""
        self._id = settings.kafka_sasl_oauth_client_id or ""
        secret = settings.kafka_sasl_oauth_client_secret
        # RFC 6749 2.3.1: each is encoded as in a form before it is encoded as Basic.
        password = quote_plus("" if secret is None else secret.get_secret_value())
        self._login = httpx.BasicAuth(quote_plus(self._id), password)
        self._form = {"grant_type": "client_credentials"}
        if settings.kafka_sasl_oauth_scope:
            self._form["scope"] = settings.kafka_sasl_oauth_scope
        self._extensions = dict(e.split("=", 1) for e in settings.kafka_sasl_oauth_extensions)
        self._tls = ssl.create_default_context()
        if settings.kafka_ssl_cafile is not None:  # besides the well-known authorities
            self._tls.load_verify_locations(settings.kafka_ssl_cafile)
        self._clock = clock
        self._renewing = asyncio.Lock()
        self._token = ""
        self._renew_at = self._valid_until = float("-inf")

    def extensions(self) -> dict[str, str]:
        """The SASL extensions that are sent beside the token."""
        return self._extensions

    async def token(self) -> str:
        """A valid token. Raises LoginTokenError, within 5 s."""
        async with self._renewing:
            if self._clock() >= self._renew_at:
                try:
                    await self.renew()
                except LoginTokenError as error:
                    if self._clock() >= self._valid_until:
                        raise
                    log.warning("the token of the login at Kafka is not renewed", error=str(error))
            return self._token

    async def renew(self) -> float:
        """Request a fresh token. Returns its lifetime in seconds. Raises LoginTokenError."""
        begin = self._clock()
        try:
            async with (
                asyncio.timeout(_SECONDS),
                httpx.AsyncClient(verify=self._tls, trust_env=False) as client,
            ):
                answer = await client.post(self._url, data=self._form, auth=self._login)
            if answer.status_code != 200:
                raise self._fault(f"answers {answer.status_code} to the client {self._id[:80]!r}")
            reply = msgspec.json.decode(answer.content, type=_Reply, strict=False)
        except (httpx.HTTPError, TimeoutError) as error:
            raise self._fault(f"cannot be reached ({describe(error)})") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise self._fault("answers with no token") from None
        self._token, self._valid_until = reply.access_token, begin + reply.expires_in
        self._renew_at = begin + _RENEWED_AFTER * reply.expires_in
        return reply.expires_in

    def _fault(self, fault: str) -> LoginTokenError:
        address = self._url.partition("?")[0]  # its query may contain secrets
        settings = f"{PREFIX}KAFKA_SASL_OAUTH_TOKEN_URL, _CLIENT_ID, _CLIENT_SECRET and _SCOPE"
        return LoginTokenError(f"the token endpoint {address} {fault}: check {settings}")
