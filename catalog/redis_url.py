"""What REDIS_URL may say: read once, without opening anything.

redis-py takes any parameter of a URL, and fails over one that it does not know when it first
connects; a database that is no number it takes for 0.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit

from catalog.redis_sentinel import read_sentinel_url

_SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster", "unix")
_SENTINEL_SCHEMES = ("redis+sentinel", "rediss+sentinel")
_ACCEPTED = ", ".join(f"{scheme}://" for scheme in (*_SCHEMES, *_SENTINEL_SCHEMES))
_UNREADABLE = (
    f"cannot be read; accepted: [user:password@]host[:port] behind {_ACCEPTED}; behind the "
    "last two [user:password@]host:port,host:port/service"
)
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_OF_TLS = (
    *_FILES,
    "ssl_ca_path",
    "ssl_ca_data",
    "ssl_password",
    "ssl_cert_reqs",
    "ssl_check_hostname",
    "ssl_min_version",
    "ssl_ciphers",
)
_OF_ALL = (
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
_OF_SENTINELS = tuple(f"sentinel_{name}" for name in (*_OF_ALL, *_OF_TLS))


def check_redis_url(url: str) -> None:
    """Raise ValueError if `url` cannot work. The message never holds the URL: it may carry a
    password."""
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        if parts.scheme in _SENTINEL_SCHEMES:
            read_sentinel_url(url)
        else:
            _ = parts.port
    except ValueError:
        raise ValueError(_UNREADABLE) from None
    if parts.scheme not in (*_SCHEMES, *_SENTINEL_SCHEMES):
        raise ValueError(f"begins with none of {_ACCEPTED}")
    _check_place(parts)
    _check_query(parts.scheme, query)


def _check_place(parts: SplitResult) -> None:
    if parts.netloc.count("@") > 1:
        raise ValueError("has more than one @: write %40 for one that is part of the password")
    if parts.scheme == "unix":
        return
    if not parts.netloc:
        raise ValueError(_UNREADABLE)
    if parts.scheme not in _SENTINEL_SCHEMES:
        database = parts.path.strip("/")
        if database and not database.isdecimal():
            raise ValueError("the database behind the last / is a number, such as 0")


def _check_query(scheme: str, query: Mapping[str, str]) -> None:
    behind_sentinel = scheme in _SENTINEL_SCHEMES
    known = (*_OF_ALL, *_OF_TLS, *(_OF_SENTINELS if behind_sentinel else ()))
    for name in query:
        if name not in known:
            accepted = ", ".join(sorted(known))
            raise ValueError(f"the parameter {name[:40]!r} is not known; accepted: {accepted}")
        if name in _OF_TLS and not scheme.startswith("rediss"):
            raise ValueError(f"{name} has no effect in plain text: begin with rediss")
    for name in _FILES:
        if name in query and not Path(query[name]).is_file():
            raise ValueError(f"{name} {query[name]}: no such file")
