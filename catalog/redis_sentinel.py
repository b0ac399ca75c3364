"""Redis behind Sentinel: `redis+sentinel://[user:password@]host:port,host:port/service[/database]`.

After each lost connection the Sentinels give the client the primary's address. Query parameters are
those of redis-py (ssl_ca_certs, ssl_certfile, ssl_keyfile), and sentinel_username and
sentinel_password for the Sentinels themselves. rediss+sentinel:// speaks TLS with both.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from redis.asyncio import Redis, Sentinel
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError

from catalog.errors import RedisUrlError

SENTINEL_SCHEMES = ("redis+sentinel://", "rediss+sentinel://")
_PORT = 26379
_HIGHEST_PORT = 65535
_SENTINEL_SECONDS = 1.0
_OF_SENTINELS = "sentinel_"


class SentinelAddress(NamedTuple):
    """The content of a URL.

    `options` are for the connections to the primary, `of_sentinels` for those to the Sentinels.
    """

    sentinels: list[tuple[str, int]]
    service: str
    options: dict[str, Any]
    of_sentinels: dict[str, Any]


class SentinelRedis(Redis):
    """A client of the primary; closing it closes its connections to the Sentinels too."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await super().aclose(close_connection_pool)
        await self.watchers.aclose()

    @property
    def watchers(self) -> Sentinel:
        """The clients of the Sentinels."""
        found: Sentinel = getattr(self.connection_pool, "sentinel_manager")  # noqa: B009  # no stub
        return found


def read_sentinel_url(url: str) -> SentinelAddress:
    """Parse the URL. Raises ValueError, whose text may hold the password."""
    parts = urlsplit(url)
    user, at, places = parts.netloc.rpartition("@")
    service, _, database = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("no service behind the addresses")
    if database and not database.isdecimal():
        raise ValueError("a database is a number")
    scheme = parts.scheme.removesuffix("+sentinel")
    single = f"{scheme}://{user}{at}primary/{database}?{parts.query}"
    parsed: dict[str, Any] = dict(parse_url(single))
    is_tls = parsed.pop("connection_class", None) is not None
    parsed.pop("host", None)
    of_sentinels = {name: value for name, value in parsed.items() if name.startswith(_OF_SENTINELS)}
    options = {name: value for name, value in parsed.items() if name not in of_sentinels} | {
        "ssl": is_tls
    }
    of_tls = {name: value for name, value in options.items() if name.startswith("ssl")}
    of_sentinels = of_tls | {
        name.removeprefix(_OF_SENTINELS): value for name, value in of_sentinels.items()
    }
    return SentinelAddress(
        [_place(each) for each in places.split(",")], service, options, of_sentinels
    )


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.strip().partition(":") if not text.startswith("[") else _ipv6(text)
    number = int(port or _PORT)
    if not host or not 0 < number <= _HIGHEST_PORT:
        raise ValueError("an address is host:port")
    return host, number


def _ipv6(text: str) -> tuple[str, str, str]:
    host, bracket, rest = text[1:].partition("]")
    if not bracket or rest[:1] not in ("", ":"):
        raise ValueError("an address is [host]:port")
    return host, ":", rest[1:]


def connect_sentinel(url: str, options: Mapping[str, Any]) -> SentinelRedis:
    """A client of the primary; `options` are those of every client. Raises ValueError."""
    address = read_sentinel_url(url)
    once = {"socket_timeout": _SENTINEL_SECONDS, "socket_connect_timeout": _SENTINEL_SECONDS}
    of_sentinels = {**once, **address.of_sentinels, "retry": Retry(NoBackoff(), 0)}
    make: Any = Sentinel  # redis-py has no types for it
    watchers = make(address.sentinels, sentinel_kwargs=of_sentinels)
    client: Any = watchers.master_for(
        address.service, redis_class=SentinelRedis, **{**options, **address.options}
    )
    assert isinstance(client, SentinelRedis)  # noqa: S101  # the requested class
    return client


async def probe_sentinel(client: SentinelRedis, service: str) -> None:
    """Raise RedisUrlError if the answer of a Sentinel shows that the URL cannot work."""
    for each in client.watchers.sentinels:
        try:
            known: Any = await each.sentinel_masters()
        except (AuthenticationError, AuthorizationError):
            raise RedisUrlError(
                "Sentinel refuses user or password: sentinel_username and sentinel_password in "
                "the URL's query are its own"
            ) from None
        except ResponseError:
            raise RedisUrlError("no Sentinel there: use redis://") from None
        except (RedisError, OSError, TimeoutError):
            continue  # another Sentinel may answer
        if service not in known:
            raise RedisUrlError(
                f"Sentinel knows no service {service!r}; known: {', '.join(known) or 'none'}"
            )
        return
