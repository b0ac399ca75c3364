"""Requests the token for a login by OAUTHBEARER from an OIDC provider's token endpoint.

The grant is client credentials (RFC 6749 4.4). No message contains a token or a secret.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote_plus

import httpx
import msgspec
import structlog
from aiokafka.abc import AbstractTokenProvider

from engine.kafka.errors import LoginTokenError
from engine.process.errors import SettingsError
from engine.process.failures import describe
from engine.process.http_client import (
    AnswerTooLongError,
    NoHttpError,
    fetch_bounded,
)
from engine.process.settings import PREFIX, Settings

log = structlog.get_logger(__name__)

_OF = f"{PREFIX}KAFKA_SASL_OAUTH_"
_MOST_BYTES = 64 * 1024
# RFC 6750: any other character in a token would end the login message early.
_TOKEN = re.compile(r"[-A-Za-z0-9._~+/]+=*")
_REASON = re.compile(r"[a-z_]{1,40}")
_DEFAULT_SECONDS = 60.0
# A token is renewed after this share of its lifetime, as Kafka's own clients do it.
_RENEWED_AFTER = 0.8
_PAUSE = 10.0  # after a failed renewal, while the old token is still valid


class _Reply(msgspec.Struct):
    access_token: str = ""
    expires_in: float | str | None = None
    error: str = ""


_decode = msgspec.json.Decoder(_Reply).decode


@dataclass(frozen=True, slots=True)
class LoginToken:
    """A token, and the seconds for which it is valid."""

    text: str = field(repr=False)  # asyncio shows what a task has returned
    seconds: float


@lru_cache(maxsize=4)
def _tls(ca_file: Path | None) -> ssl.SSLContext:
    """The well-known authorities, and those of the file."""
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ValueError):
            fault = f"{PREFIX}KAFKA_SSL_CAFILE {ca_file}: contains no certificate in PEM"
            raise SettingsError(fault) from None
    return context


@dataclass(frozen=True)
class TokenEndpoint:
    """Requests tokens for one client. Raises SettingsError for a CA file without certificates."""

    url: str
    id: str
    secret: str = field(repr=False)
    scope: str | None = None
    ca_file: Path | None = None
    deadline: float = 5.0  # of one request, seconds

    def __post_init__(self) -> None:
        _tls(self.ca_file)

    @property
    def shown(self) -> str:
        """The address without its query, which may contain secrets."""
        return self.url.partition("?")[0]

    async def fetch(self) -> LoginToken:
        """A fresh token. Raises LoginTokenError."""
        form = {"grant_type": "client_credentials"}
        if self.scope:
            form["scope"] = self.scope
        try:
            answer = await fetch_bounded(
                self.url,
                tls=_tls(self.ca_file),
                deadline=self.deadline,
                most_bytes=_MOST_BYTES,
                headers={"accept": "application/json"},
                form=form,
                # RFC 6749 2.3.1: each is encoded as in a form before it is encoded as Basic.
                auth=httpx.BasicAuth(quote_plus(self.id), quote_plus(self.secret)),
            )
        except ssl.SSLCertVerificationError as error:
            fault = f"the certificate of {self.shown} is refused ({error.verify_message or error})"
            raise LoginTokenError(
                f"{fault}: check {PREFIX}KAFKA_SSL_CAFILE", certain=True
            ) from None
        except TimeoutError:
            raise self._fault(f"does not answer within {self.deadline:g} s") from None
        except OSError as error:
            raise self._fault(f"cannot be reached ({describe(error)})") from None
        except (NoHttpError, AnswerTooLongError):
            raise self._fault("is no token endpoint") from None
        reply, seconds = _Reply(), 0.0
        with suppress(msgspec.DecodeError, RecursionError, ValueError):
            reply = _decode(answer.body)
            seconds = _DEFAULT_SECONDS if reply.expires_in is None else float(reply.expires_in)
        if answer.status != 200:
            raise self._refusal(answer.status, reply.error)
        if seconds <= 0 or not _TOKEN.fullmatch(reply.access_token):
            raise self._fault("answers with no token")
        return LoginToken(reply.access_token, seconds)

    def _refusal(self, status: int, reason: str) -> LoginTokenError:
        # The error's name (RFC 6749 5.2), never its description.
        shown = f"{status} {reason if _REASON.fullmatch(reason) else ''}".strip()
        if reason in ("invalid_client", "unauthorized_client") or status == 401:
            fault = f"refuses the client {self.id[:80]!r} ({shown})"
            return self._fault(fault, "CLIENT_ID and _CLIENT_SECRET", certain=True)
        is_permanent = 400 <= status < 500 and status not in (408, 429)
        setting = "SCOPE" if reason == "invalid_scope" else "TOKEN_URL"
        return self._fault(f"gives no token, it answers {shown}", setting, certain=is_permanent)

    def _fault(
        self, fault: str, setting: str = "TOKEN_URL", *, certain: bool = False
    ) -> LoginTokenError:
        return LoginTokenError(f"{self.shown} {fault}: check {_OF}{setting}", certain=certain)


class SharedTokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """Provides the token of one client. Concurrent callers share one request.

    The event loops of several threads share the token, which is replaced atomically.
    """

    def __init__(
        self,
        endpoint: TokenEndpoint,
        extensions: Mapping[str, str] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._extensions = dict(extensions or {})
        self._clock = clock
        self._cached = LoginToken("", 0.0), float("-inf")
        self._not_before = float("-inf")
        self._request: asyncio.Task[LoginToken] | None = None

    def extensions(self) -> dict[str, str]:
        """The SASL extensions that are sent beside the token."""
        return self._extensions

    async def token(self) -> str:
        """A valid token. Raises LoginTokenError, within the endpoint's deadline."""
        token, since = self._cached
        age = self._clock() - since
        is_fresh = age < token.seconds * _RENEWED_AFTER
        if is_fresh or (age < token.seconds and self._clock() < self._not_before):
            return token.text
        try:
            return (await self._shared()).text
        except LoginTokenError as error:
            # The old token may have expired while the endpoint was slow.
            remaining = since + token.seconds - self._clock()
            if remaining <= 0:
                raise
            self._not_before = self._clock() + _PAUSE
            log.warning(
                "the token of the login at Kafka cannot be renewed; the old one is used",
                error=str(error),
                seconds_left=round(remaining),
            )
            return token.text

    async def _shared(self) -> LoginToken:
        loop, task = asyncio.get_running_loop(), self._request
        if task is None or task.done() or task.get_loop() is not loop:
            task = loop.create_task(self._fetch(), name="kafka login token")
            # The callers may have been cancelled when the request fails.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._request = task
        return await asyncio.shield(task)

    async def _fetch(self) -> LoginToken:
        begin = self._clock()
        token = await self._endpoint.fetch()
        self._cached = token, begin
        return token


def token_endpoint(settings: Settings) -> TokenEndpoint:
    """The endpoint of settings with OAUTHBEARER, which are complete."""
    secret = settings.kafka_sasl_oauth_client_secret
    return TokenEndpoint(
        url=settings.kafka_sasl_oauth_token_url or "",
        id=settings.kafka_sasl_oauth_client_id or "",
        secret="" if secret is None else secret.get_secret_value(),
        scope=settings.kafka_sasl_oauth_scope,
        ca_file=settings.kafka_ssl_cafile,
    )


def token_provider(settings: Settings) -> SharedTokenProvider:
    """The token provider, the same one for all Kafka clients of a process."""
    return _shared_provider(token_endpoint(settings), settings.kafka_sasl_oauth_extensions)


@lru_cache(maxsize=4)
def _shared_provider(endpoint: TokenEndpoint, pairs: tuple[str, ...]) -> SharedTokenProvider:
    return SharedTokenProvider(endpoint, dict(pair.split("=", 1) for pair in pairs))
