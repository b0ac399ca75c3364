"""What DATABASE_URL may say: read once, without opening anything and without SQLAlchemy."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

ACCEPTED = (
    "accepted: postgresql://user:password@host:port/name[?sslmode=verify-full&sslrootcert=FILE] "
    "or sqlite:///path/of/a/file"
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


def check_database_url(url: str) -> None:
    """Raise ValueError if `url` cannot work. The message never holds the URL: it may carry a
    password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
        query = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        raise ValueError(f"cannot be read; {ACCEPTED}") from None
    if parts.netloc.count("@") > 1:
        raise ValueError(
            f"has more than one @: write %40 for one that is part of the password; {ACCEPTED}"
        )
    if parts.scheme in _POSTGRESQL:
        _check_query(query)
    elif parts.scheme in _SQLITE and parts.path.strip("/") in ("", ":memory:"):
        # Each command would have tables of its own, and lose them when it ends.
        raise ValueError(f"names no file; {ACCEPTED}")
    elif parts.scheme not in _SQLITE:
        raise ValueError(f"begins with neither postgresql:// nor sqlite:///; {ACCEPTED}")


def _check_query(query: dict[str, str]) -> None:
    for name in query:
        if name not in _LIBPQ and name not in _OURS:
            known = ", ".join(sorted((*_LIBPQ, *_OURS)))
            raise ValueError(f"the parameter {name[:40]!r} is not known; accepted: {known}")
    mode = query.get("sslmode", query.get("ssl", "prefer"))
    if mode not in _MODES:
        raise ValueError(f"sslmode is none of {', '.join(_MODES)}")
    for name in _FILES:
        if name in query and not Path(query[name]).is_file():
            raise ValueError(f"{name} {query[name]}: no such file")


def split_libpq(query: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    """What of a PostgreSQL URL's query stays there, and a DSN with what asyncpg reads from one.

    An authority that is named is used, as libpq does for sslmode=require: a mode that would not
    look at it becomes verify-ca.
    """
    kept = {name: value for name, value in query.items() if name not in _LIBPQ}
    libpq = {name: value for name, value in query.items() if name in _LIBPQ}
    if "ssl" in kept:
        libpq.setdefault("sslmode", kept.pop("ssl"))
    if "sslrootcert" in libpq and libpq.get("sslmode", "prefer") in ("allow", "prefer", "require"):
        libpq["sslmode"] = "verify-ca"
    return kept, f"postgresql://?{urlencode(libpq)}" if libpq else None
