"""Requests the token for a login by OAUTHBEARER from an OIDC provider's token endpoint.

The grant is client credentials (RFC 6749 4.4). No message contains a token or a secret.
"""

import asyncio
import re
import ssl
import time
import weakref
from collections.abc import Callable, Mapping
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
from engine.process.http_client import (
    AnswerTooLongError,
    BoundedAnswer,
    NoHttpError,
    fetch_bounded,
)
from engine.process.settings import PREFIX, Settings

log = structlog.get_logger(__name__)

_OF = f"{PREFIX}KAFKA_SASL_OAUTH_"
_MOST_BYTES = 64 * 1024
_FOUND, _UNAUTHORIZED = 200, 401
_TEMPORARY = (408, 429)  # a timeout and too many requests
# RFC 6750: any other character in a token would end the login message early.
_TOKEN = re.compile(r"[-A-Za-z0-9._~+/]+=*")
_REASON = re.compile(r"[a-z_]{1,40}")
_DEFAULT_SECONDS = 60.0
_CLIENT_FAULTS = ("invalid_client", "unauthorized_client")


class _Granted(msgspec.Struct):
    access_token: str
    expires_in: float | str | None = None


class _Refused(msgspec.Struct):
    error: str = ""


_granted = msgspec.json.Decoder(_Granted).decode
_refused = msgspec.json.Decoder(_Refused).decode


@dataclass(frozen=True, slots=True)
class LoginToken:
    """A token, and the seconds for which it is valid."""

    text: str = field(repr=False)  # asyncio shows what a task has returned
    seconds: float


@lru_cache(maxsize=4)
def _tls(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError):
        raise SettingsError(f"{_OF}CA_FILE {ca_file}: contains no certificate in PEM") from None


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
            raise LoginTokenError(f"{fault}: check {_OF}CA_FILE", certain=True) from None
        except (OSError, NoHttpError, AnswerTooLongError) as error:
            raise LoginTokenError(self._unreachable(error)) from None
        if answer.status != _FOUND:
            raise self._refusal(answer)
        return self._read(answer.body)

    def _unreachable(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            fault = f"does not answer within {self.deadline:g} s"
        elif isinstance(error, OSError):
            fault = f"cannot be reached ({error.strerror or type(error).__name__})"
        else:
            fault = "is no token endpoint"
        return f"{self.shown} {fault}: check {_OF}TOKEN_URL, and whether it runs"

    def _read(self, body: bytes) -> LoginToken:
        try:
            granted = _granted(body)
            seconds = _DEFAULT_SECONDS if granted.expires_in is None else float(granted.expires_in)
        except (msgspec.DecodeError, RecursionError, ValueError):
            granted, seconds = _Granted(""), 0.0
        if not _TOKEN.fullmatch(granted.access_token) or not seconds > 0:
            raise LoginTokenError(f"{self.shown} answers with no token: check {_OF}TOKEN_URL")
        return LoginToken(granted.access_token, seconds)

    def _refusal(self, answer: BoundedAnswer) -> LoginTokenError:
        reason = _reason(answer.body)
        shown = f"{answer.status} {reason}".strip()
        if reason in _CLIENT_FAULTS or answer.status == _UNAUTHORIZED:
            fault = f"refuses the client {self.id[:80]!r} ({shown}): check {_OF}CLIENT_ID and "
            return LoginTokenError(f"{self.shown} {fault}_CLIENT_SECRET", certain=True)
        if reason == "invalid_scope":
            fault = f"refuses the scope: check {_OF}SCOPE"
            return LoginTokenError(f"{self.shown} {fault}", certain=True)
        is_permanent = 400 <= answer.status < 500 and answer.status not in _TEMPORARY
        hint = f": check {_OF}TOKEN_URL" if is_permanent else ""
        fault = f"gives no token, it answers {shown}{hint}"
        return LoginTokenError(f"{self.shown} {fault}", certain=is_permanent)


def _reason(body: bytes) -> str:
    """The error's name (RFC 6749 5.2), never its description."""
    try:
        reason = _refused(body).error
    except (msgspec.DecodeError, RecursionError):
        return ""
    return reason if _REASON.fullmatch(reason) else ""


# A token is renewed after this share of its lifetime, as Kafka's own clients do it.
_RENEWED_AFTER = 0.8
# The pause after a failed renewal, while the old token is still valid.
_PAUSE = 5.0
_LOG_EVERY = 60.0


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
        self._logged_at = float("-inf")
        self._requests: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, asyncio.Task[LoginToken]
        ] = weakref.WeakKeyDictionary()

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
            self._postpone_renewal(error, remaining)
            return token.text

    async def _shared(self) -> LoginToken:
        loop = asyncio.get_running_loop()
        task = self._requests.get(loop)
        if task is None or task.done():
            task = loop.create_task(self._fetch(), name="kafka login token")
            # The callers may have been cancelled when the request fails.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._requests[loop] = task
        return await asyncio.shield(task)

    async def _fetch(self) -> LoginToken:
        begin = self._clock()
        token = await self._endpoint.fetch()
        self._cached = token, begin
        return token

    def _postpone_renewal(self, error: LoginTokenError, remaining: float) -> None:
        now = self._clock()
        self._not_before = now + _PAUSE
        if now - self._logged_at >= _LOG_EVERY:
            self._logged_at = now
            log.warning(
                "the token of the login at Kafka cannot be renewed; the old one is used",
                error=str(error),
                seconds_left=round(remaining),
            )


def token_endpoint(settings: Settings) -> TokenEndpoint:
    """The endpoint of settings with OAUTHBEARER, which are complete."""
    secret = settings.kafka_sasl_oauth_client_secret
    return TokenEndpoint(
        url=settings.kafka_sasl_oauth_token_url or "",
        id=settings.kafka_sasl_oauth_client_id or "",
        secret="" if secret is None else secret.get_secret_value(),
        scope=settings.kafka_sasl_oauth_scope,
        ca_file=settings.kafka_sasl_oauth_ca_file,
    )


def token_provider(settings: Settings) -> SharedTokenProvider:
    """The token provider, the same one for all Kafka clients of a process."""
    return _shared_provider(token_endpoint(settings), settings.kafka_sasl_oauth_extensions)


@lru_cache(maxsize=4)
def _shared_provider(endpoint: TokenEndpoint, pairs: tuple[str, ...]) -> SharedTokenProvider:
    return SharedTokenProvider(endpoint, dict(pair.split("=", 1) for pair in pairs))
