"""Readers of one value each. They return it as it is kept, or raise FieldError.

A reader takes whatever JSON holds. The error's message says what is accepted, and never what was
given: that may be a secret.
"""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID
from zoneinfo import ZoneInfo

from rules.cache_delay import parse_delay

Reader = Callable[[Any], Any]

INT32 = 2**31 - 1
INT64 = 2**63 - 1
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:?\d\d)", re.ASCII
)
_TIME_OF_DAY = re.compile(r"(\d\d):(\d\d)", re.ASCII)
_DIGITS = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}")
_TRUE = (True, 1, "1", "true")
_FALSE = (False, 0, "0", "false")
_LAST_MINUTE = 24 * 60


class FieldError(ValueError):
    """A value is not accepted; the message says what is."""


def text(longest: int | None = 255, *, shortest: int = 1) -> Reader:
    """A string of so many characters; the ones around it that are blank count, and are kept."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or "\x00" in value:
            raise FieldError("accepted: a string without NUL characters")
        if len(value) < shortest or (shortest and not value.strip()):
            raise FieldError(f"accepted: a string of {shortest} or more characters, not all blank")
        if longest is not None and len(value) > longest:
            raise FieldError(f"accepted: a string of at most {longest} characters")
        return value

    return read


def integer(lowest: int, highest: int) -> Reader:
    """A whole number, or a string of its digits."""

    def read(value: Any) -> int:
        if isinstance(value, str) and _DIGITS.fullmatch(value):
            value = int(value)
        if type(value) is not int or not lowest <= value <= highest:
            raise FieldError(f"accepted: a whole number from {lowest} to {highest}")
        return value

    return read


def number(lowest: float, highest: float) -> Reader:
    """A finite number."""

    def read(value: Any) -> float:
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if not numeric or not math.isfinite(value) or not lowest <= value <= highest:
            raise FieldError(f"accepted: a number from {lowest:g} to {highest:g}")
        return float(value)

    return read


def boolean(value: Any) -> bool:
    """true or false, 1 or 0, or any of these as a string."""
    known = value.lower() if isinstance(value, str) else value
    if isinstance(known, bool | int | str):
        if known in _TRUE:
            return True
        if known in _FALSE:
            return False
    raise FieldError("accepted: true, false, 1, 0, also as strings")


def choice(*names: str) -> Reader:
    """One of some words, in any case; kept as spelt here."""
    by_name = {name.lower(): name for name in names}

    def read(value: Any) -> str:
        found = by_name.get(value.strip().lower()) if isinstance(value, str) else None
        if found is None:
            raise FieldError(f"accepted: {', '.join(names)}")
        return found

    return read


def timestamp(value: Any) -> datetime:
    """An instant with the offset in which it was written."""
    try:
        if isinstance(value, str) and _TIMESTAMP.fullmatch(value):
            written = datetime.fromisoformat(value.upper())
            written.astimezone(UTC)
            return written
    except (ValueError, OverflowError):
        # Falls through: no such day, or no such instant in UTC.
        pass
    raise FieldError("accepted: a timestamp as 2026-11-20T10:00:00+0100, or in RFC 3339")


def time_of_day(*, end: bool) -> Reader:
    """HH:MM as minutes from midnight; 24:00 only as an end."""
    latest = _LAST_MINUTE if end else _LAST_MINUTE - 1
    accepted = f"accepted: a time of day as HH:MM, 00:00 to {'24:00' if end else '23:59'}"

    def read(value: Any) -> int:
        match = _TIME_OF_DAY.fullmatch(value) if isinstance(value, str) else None
        minutes = int(match[1]) * 60 + int(match[2]) if match and int(match[2]) < 60 else -1
        if not 0 <= minutes <= latest:
            raise FieldError(accepted)
        return minutes

    return read


def uuid(value: Any) -> str:
    """A UUID in any case, with or without dashes; kept in lower case with dashes."""
    if isinstance(value, str) and _UUID.fullmatch(value.strip().lower()):
        return str(UUID(value.strip()))
    raise FieldError("accepted: a UUID of 32 hexadecimal digits, with or without dashes")


def cache(value: Any) -> str:
    """A cache delay that rules.cache_delay understands; kept as written."""
    try:
        if isinstance(value, str):
            parse_delay(value)
            return value
        parse_delay("")
    except ValueError as error:
        raise FieldError(str(error)) from None
    raise AssertionError("an empty cache delay is none")


def time_zone(value: Any) -> str:
    """The IANA name of a time zone."""
    try:
        if isinstance(value, str):
            ZoneInfo(value)
            return value
    except (ValueError, OSError, KeyError):
        # Falls through: unknown, or a path that is no zone.
        pass
    raise FieldError("accepted: the IANA name of a time zone, such as Europe/Paris")


def email(value: Any) -> str:
    """An e-mail address; kept in lower case."""
    if isinstance(value, str) and len(value) <= 254 and _EMAIL.fullmatch(value.strip()):
        return value.strip().lower()
    raise FieldError("accepted: an e-mail address of at most 254 characters, without spaces")


def web_address(value: Any) -> str:
    """An http or https URL without user and password."""
    try:
        if isinstance(value, str) and len(value) <= 2048 and value.isprintable():
            parts = urlsplit(value)
            good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            if good and parts.username is None and parts.password is None and " " not in value:
                return value
    except ValueError:
        # Falls through: not even the parts can be told.
        pass
    raise FieldError(
        "accepted: an address http:// or https://, of at most 2048 characters, "
        "without a user and password (those belong in parameters)"
    )


def json_list(value: Any) -> list[Any]:
    """A list of anything."""
    if not isinstance(value, list):
        raise FieldError("accepted: a list")
    return value
