"""Checks DATABASE_URL and REDIS_URL without opening anything.

Messages never hold the URL, which may carry a password.
"""

from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

from redis.asyncio.connection import parse_url

ACCEPTED = (
    "accepted: postgresql://user:password@host:port/name[?sslmode=verify-full&sslrootcert=FILE] "
    "or sqlite:///path/of/a/file"
)
ACCEPTED_REDIS = (
    "accepted: redis://, rediss://, redis+cluster://, rediss+cluster://, each "
    "[user:password@]host[:port]; redis+sentinel://, rediss+sentinel://, each "
    "[user:password@]host:port,host:port/service"
)
_POSTGRESQL = ("postgresql", "postgres", "postgresql+asyncpg")
_SQLITE = ("sqlite", "sqlite+aiosqlite")
_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
# libpq's names: asyncpg understands them in a DSN, not as arguments.
_LIBPQ = (
    *_FILES,
    "sslmode",
    "sslpassword",
    "sslnegotiation",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "target_session_attrs",
    "application_name",
    "options",
)
_OURS = ("ssl", "host", "port", "prepared_statement_cache_size")
_REDIS = ("redis", "rediss", "redis+cluster", "rediss+cluster", "unix")
_SENTINEL = ("redis+sentinel", "rediss+sentinel")
_REDIS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_REDIS_TLS = (
    *_REDIS_FILES,
    "ssl_ca_path",
    "ssl_ca_data",
    "ssl_password",
    "ssl_cert_reqs",
    "ssl_check_hostname",
    "ssl_min_version",
    "ssl_ciphers",
)
_REDIS_OPTIONS = (
    *_REDIS_TLS,
    "db",
    "username",
    "password",
    "client_name",
    "socket_timeout",
    "socket_connect_timeout",
    "socket_keepalive",
    "health_check_interval",
    "max_connections",
)
_OF_SENTINELS = "sentinel_"
_SENTINEL_PORT = 26379


def check_database_url(url: str) -> None:
    """Raise ValueError if `url` cannot work."""
    try:
        parts, query = _split(url)
    except ValueError:
        raise ValueError(f"cannot be read; {ACCEPTED}") from None
    if parts.netloc.count("@") > 1:
        raise ValueError(
            f"has more than one @: write %40 for one that is part of the password; {ACCEPTED}"
        )
    if parts.scheme in _POSTGRESQL:
        _check_names(query, (*_LIBPQ, *_OURS))
        _check_files(query, _FILES)
        if query.get("sslmode", query.get("ssl", "prefer")) not in _MODES:
            raise ValueError(f"sslmode is none of {', '.join(_MODES)}")
    elif parts.scheme in _SQLITE and parts.path.strip("/") in ("", ":memory:"):
        # Each command would have tables of its own, and lose them when it ends.
        raise ValueError(f"names no file; {ACCEPTED}")
    elif parts.scheme not in _SQLITE:
        raise ValueError(f"begins with neither postgresql:// nor sqlite:///; {ACCEPTED}")


def split_libpq(query: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The query that stays in a PostgreSQL URL, and a DSN with the parameters that asyncpg reads.

    An authority in the URL is always used: a mode that would ignore it becomes verify-ca, as libpq
    does for sslmode=require.
    """
    kept = {name: value for name, value in query.items() if name not in _LIBPQ}
    libpq = {name: value for name, value in query.items() if name in _LIBPQ}
    if "ssl" in kept:
        libpq.setdefault("sslmode", kept.pop("ssl"))
    if "sslrootcert" in libpq and libpq.get("sslmode", "prefer") in ("allow", "prefer", "require"):
        libpq["sslmode"] = "verify-ca"
    return kept, f"postgresql://?{urlencode(libpq)}" if libpq else None


def check_redis_url(url: str) -> None:
    """Raise ValueError if `url` cannot work.

    redis-py takes any parameter, and fails over one that it does not know when it first connects.
    """
    scheme = url.partition("://")[0]
    behind_sentinel = scheme in _SENTINEL
    if not behind_sentinel and scheme not in _REDIS:
        raise ValueError(f"cannot be read; {ACCEPTED_REDIS}")
    try:
        if behind_sentinel:
            read_sentinel_url(url)
        parts, query = _split(url, with_port=not behind_sentinel)
    except ValueError:
        raise ValueError(f"cannot be read; {ACCEPTED_REDIS}") from None
    if parts.netloc.count("@") > 1:
        raise ValueError("has more than one @: write %40 for one that is part of the password")
    if scheme != "unix" and not parts.netloc:
        raise ValueError(f"cannot be read; {ACCEPTED_REDIS}")
    database = parts.path.strip("/")
    if not behind_sentinel and scheme != "unix" and database and not database.isdecimal():
        raise ValueError("the database behind the last / is a number, such as 0")
    of_sentinels = tuple(f"{_OF_SENTINELS}{name}" for name in _REDIS_OPTIONS)
    _check_names(query, (*_REDIS_OPTIONS, *(of_sentinels if behind_sentinel else ())))
    for name in query:
        if name in _REDIS_TLS and not scheme.startswith("rediss"):
            raise ValueError(f"{name} has no effect in plain text: begin with rediss")
    _check_files(query, _REDIS_FILES)


class SentinelAddress(NamedTuple):
    """The content of `redis+sentinel://[user:password@]host:port,host:port/service[/database]`.

    `options` are for the connections to the primary, `of_sentinels` for those to the Sentinels.
    """

    sentinels: list[tuple[str, int]]
    service: str
    options: dict[str, Any]
    of_sentinels: dict[str, Any]


def read_sentinel_url(url: str) -> SentinelAddress:
    """Parse the URL. Raises ValueError, whose text may hold the password.

    Query parameters are those of redis-py; `sentinel_username` and `sentinel_password` are for the
    Sentinels themselves. rediss+sentinel:// speaks TLS with both.
    """
    parts = urlsplit(url)
    user, at, places = parts.netloc.rpartition("@")
    service, _, database = parts.path.strip("/").partition("/")
    if not service or (database and not database.isdecimal()):
        raise ValueError("the path is service or service/database")
    scheme = parts.scheme.removesuffix("+sentinel")
    given: dict[str, Any] = dict(
        parse_url(f"{scheme}://{user}{at}primary/{database}?{parts.query}")
    )
    is_tls = given.pop("connection_class", None) is not None
    given.pop("host", None)
    of_sentinels = {
        name.removeprefix(_OF_SENTINELS): given.pop(name)
        for name in list(given)
        if name.startswith(_OF_SENTINELS)
    }
    options = given | {"ssl": is_tls}
    of_tls = {name: value for name, value in options.items() if name.startswith("ssl")}
    return SentinelAddress(
        [_place(each) for each in places.split(",")], service, options, of_tls | of_sentinels
    )


def _place(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text.strip()}")
    if not parts.hostname or parts.port == 0:
        raise ValueError("an address is host:port")
    return parts.hostname, parts.port or _SENTINEL_PORT


def _split(url: str, *, with_port: bool = True) -> tuple[SplitResult, dict[str, str]]:
    parts = urlsplit(url)
    if with_port:
        _ = parts.port  # raises ValueError
    return parts, dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))


def _check_names(query: dict[str, str], known: tuple[str, ...]) -> None:
    for name in query:
        if name not in known:
            accepted = ", ".join(sorted(known))
            raise ValueError(f"the parameter {name[:40]!r} is not known; accepted: {accepted}")


def _check_files(query: dict[str, str], names: tuple[str, ...]) -> None:
    for name in names:
        if name in query and not Path(query[name]).is_file():
            raise ValueError(f"{name} {query[name]}: no such file")
