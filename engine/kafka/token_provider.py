"""Provides aiokafka's connections with the token for a login by OAUTHBEARER.

A process fetches one token for all connections, and renews it before it expires.
"""

import asyncio
import time
import weakref
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

import structlog
from aiokafka.abc import AbstractTokenProvider

from engine.kafka.errors import LoginTokenError
from engine.kafka.login_token import LoginToken, TokenClient, TokenEndpoint, extensions_of
from engine.process.settings import Settings

log = structlog.get_logger(__name__)

# A token is renewed after this share of its lifetime, as Kafka's own clients do it.
_RENEWED_AFTER = 0.8
# The pause after a failed renewal, while the old token is still valid.
_PAUSE = 5.0
_LOG_EVERY = 60.0


class _CachedToken(NamedTuple):
    token: LoginToken
    since: float


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
        self._cached = _CachedToken(LoginToken("", 0.0), float("-inf"))
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
        self._cached = _CachedToken(token, begin)
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


def token_client(settings: Settings) -> TokenClient:
    """The client of the token request, from settings with OAUTHBEARER, which are complete."""
    secret = settings.kafka_sasl_oauth_client_secret
    return TokenClient(
        url=settings.kafka_sasl_oauth_token_url or "",
        id=settings.kafka_sasl_oauth_client_id or "",
        secret="" if secret is None else secret.get_secret_value(),
        scope=settings.kafka_sasl_oauth_scope,
        ca_file=settings.kafka_sasl_oauth_ca_file,
        deadline=settings.kafka_sasl_oauth_timeout,
    )


def token_provider(settings: Settings) -> SharedTokenProvider:
    """The token provider, the same one for all Kafka clients of a process."""
    return _shared_provider(token_client(settings), settings.kafka_sasl_oauth_extensions)


@lru_cache(maxsize=4)
def _shared_provider(client: TokenClient, pairs: tuple[str, ...]) -> SharedTokenProvider:
    return SharedTokenProvider(TokenEndpoint(client), extensions_of(pairs))
