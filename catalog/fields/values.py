"""The readers of values: text, numbers, flags, instants, and what is written in a form."""

import math
import re
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from catalog.fields.reader import FieldError, ValueReader, any_case, digits, reader
from rules.cache_delay import parse_delay

INT32 = 2**31 - 1
INT64 = 2**63 - 1
DEEPEST = 16  # lists and objects within each other: writers and readers of JSON have limits
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
_LONGEST_NUMBER = 19

# A date that exists in every year, and offsets that a datetime can hold.
_DATE = (
    r"[12][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_HOUR = r"(?:[01][0-9]|2[0-3])"
_MINUTE = r"[0-5][0-9]"
_WRITTEN = (
    rf"^{_DATE}[Tt ]{_HOUR}:{_MINUTE}:{_MINUTE}(?:\.[0-9]{{1,9}})?"
    rf"(?:[Zz]|[+-]{_HOUR}:?{_MINUTE})$"
)
_HEX = "[0-9a-fA-F]"
_UUID_WRITTEN = rf"^(?:{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}|{_HEX}{{32}})$"
_UNITS = any_case("second", "minute", "hour", "day", "week", "month", "year")
_DELAY = (
    rf"^(?:{any_case('none')}|(?:[0-9]{{1,2}} )?(?:{_UNITS})[Ss]?"
    r"|[Pp](?:[0-9]{1,3}[Dd])?[Tt][0-9]{1,4}[HhMmSs]|[Pp][0-9]{1,2}[WwDd])$"
)
# Control characters, and those that turn the direction of what follows them or end its line.
_CONTROL = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
_HAS_CONTROL = re.compile(f"[{_CONTROL}\ud800-\udfff]")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_DECIMAL = re.compile(r"-?[0-9]{1,19}(?:\.[0-9]{1,17})?", re.ASCII)
_EXACT = 2**53  # greater floats do not tell which whole number was meant
# What the package brings is the same on every host, and every host finds it; a host's own
# directory may hold more (localtime, posix/..., right/...), which mean something else elsewhere.
ZONES = frozenset(files("tzdata").joinpath("zones").read_text("utf-8").split()) - {"Factory"}
_LABEL = r"(?:[A-Za-z0-9-]{0,20}[A-Za-z0-9])?"
_HOST = rf"[A-Za-z]{_LABEL}(?:\.[A-Za-z]{_LABEL}){{0,4}}"


def text(longest: int | None = 255, *, shortest: int = 1) -> ValueReader:
    """A string of so many characters; the ones around it that are blank count, and are kept."""
    return _string(longest, shortest, r"\x00", _UNSTORABLE, "NUL characters")


def line(longest: int | None = 255, *, shortest: int = 1) -> ValueReader:
    """The same on one line: names, and whatever else stands in tables, terminals and logs."""
    return _string(longest, shortest, _CONTROL, _HAS_CONTROL, "control characters")


def _string(
    longest: int | None, shortest: int, refused: str, has_refused: re.Pattern[str], which: str
) -> ValueReader:
    def read(value: Any) -> str:
        if not isinstance(value, str) or has_refused.search(value):
            raise FieldError(f"accepted: a string without {which}")
        if len(value) < shortest or (shortest and not value.strip()):
            raise FieldError(f"accepted: a string of {shortest} or more characters, not all blank")
        if longest is not None and len(value) > longest:
            raise FieldError(f"accepted: a string of at most {longest} characters")
        return value

    other = f"[^{refused}]*"
    filled = f"^{other}[^\\s{refused}]{other}$" if shortest else f"^{other}$"
    limits = {"minLength": shortest} | ({} if longest is None else {"maxLength": longest})
    return ValueReader(read, {"type": "string", "pattern": filled, **limits})


def integer(lowest: int, highest: int) -> ValueReader:
    """A whole number, also as 100.0, or a string of its digits."""

    def read(value: Any) -> int:
        if isinstance(value, str) and _DIGITS.fullmatch(value):
            value = int(value)
        if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
            value = int(value)
        if type(value) is not int or not lowest <= value <= highest:
            raise FieldError(f"accepted: a whole number from {lowest} to {highest}")
        return value

    written = digits(min(max(lowest, 0), 1), highest, _LONGEST_NUMBER)
    if lowest < 0:
        written += f"|-{digits(0, -lowest, _LONGEST_NUMBER)}"
    plain = {"type": "integer", "minimum": lowest, "maximum": highest}
    return ValueReader(read, {"anyOf": [plain, {"type": "string", "pattern": f"^(?:{written})$"}]})


def number(lowest: float, highest: float) -> ValueReader:
    """A finite number, or a string of its digits."""

    def read(value: Any) -> float:
        if isinstance(value, str) and _DECIMAL.fullmatch(value):
            value = float(value)
        numeric = isinstance(value, int | float) and not isinstance(value, bool)
        if not numeric or not math.isfinite(value) or not lowest <= value <= highest:
            raise FieldError(f"accepted: a number from {lowest:g} to {highest:g}")
        return float(value)

    plain = {"type": "number", "minimum": lowest, "maximum": highest}
    within = digits(0, int(min(-lowest, highest)) - 1, _LONGEST_NUMBER)
    written = rf"^-?(?:{within})(?:\.[0-9]{{1,15}})?$"
    return ValueReader(read, {"anyOf": [plain, {"type": "string", "pattern": written}]})


@reader(
    anyOf=[
        {"type": "boolean"},
        {"type": "integer", "enum": [0, 1]},
        {"type": "string", "pattern": f"^(?:0|1|{any_case('true', 'false')})$"},
    ]
)
def boolean(value: Any) -> bool:
    """true or false, 1 or 0, or any of these as a string."""
    known = value.lower() if isinstance(value, str) else value
    if isinstance(known, bool | int | str):
        if known in _TRUE:
            return True
        if known in _FALSE:
            return False
    raise FieldError("accepted: true, false, 1, 0, also as strings")


def choice(*names: str) -> ValueReader:
    """One of some words, in any case; kept as spelt here."""
    by_name = {name.lower(): name for name in names}

    def read(value: Any) -> str:
        found = by_name.get(value.strip().lower()) if isinstance(value, str) else None
        if found is None:
            raise FieldError(f"accepted: {', '.join(names)}")
        return found

    return ValueReader(read, {"type": "string", "pattern": f"^(?:{any_case(*by_name)})$"})


@reader(type="string", pattern=_WRITTEN, examples=["2026-11-20T10:00:00+0100"])
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


def time_of_day(*, end: bool) -> ValueReader:
    """HH:MM as minutes from midnight; 24:00 only as an end."""
    latest = _LAST_MINUTE if end else _LAST_MINUTE - 1
    accepted = f"accepted: a time of day as HH:MM, 00:00 to {'24:00' if end else '23:59'}"

    def read(value: Any) -> int:
        match = _TIME_OF_DAY.fullmatch(value) if isinstance(value, str) else None
        minutes = int(match[1]) * 60 + int(match[2]) if match and int(match[2]) < 60 else -1
        if not 0 <= minutes <= latest:
            raise FieldError(accepted)
        return minutes

    day = f"{_HOUR}:{_MINUTE}"
    return ValueReader(
        read, {"type": "string", "pattern": f"^(?:{day}|24:00)$" if end else f"^{day}$"}
    )


@reader(type="string", pattern=_UUID_WRITTEN)
def uuid(value: Any) -> str:
    """A UUID in any case, with or without dashes; kept in lower case with dashes."""
    if isinstance(value, str) and _UUID.fullmatch(value.strip().lower()):
        return str(UUID(value.strip()))
    raise FieldError("accepted: a UUID of 32 hexadecimal digits, with or without dashes")


@reader(type="string", pattern=_DELAY, examples=["day", "15 minutes", "PT15M"])
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


@reader(type="string", enum=sorted(ZONES))
def time_zone(value: Any) -> str:
    """The IANA name of a time zone."""
    if isinstance(value, str) and value in ZONES:
        return value
    raise FieldError("accepted: the IANA name of a time zone, such as Europe/Paris")


@reader(type="string", maxLength=254, pattern=r"^[!-?A-~]{1,64}@[!-?A-~]{1,100}$")
def email(value: Any) -> str:
    """An e-mail address; kept in lower case."""
    address = value.strip() if isinstance(value, str) and len(value) <= 254 else ""
    if _EMAIL.fullmatch(address) and not _HAS_CONTROL.search(address):
        return address.lower()
    raise FieldError("accepted: an e-mail address of at most 254 characters, without spaces")


@reader(
    type="string",
    maxLength=2048,
    pattern=rf"^https?://{_HOST}(?::[1-9][0-9]{{0,3}})?(?:/[!-~]*)?$",
    examples=["https://www.example.com/content"],
)
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


@reader(type="array", items={})
def json_list(value: Any) -> list[Any]:
    """A list of anything that is not nested deeply, without NUL characters."""
    if not isinstance(value, list) or not is_plain(value):
        raise FieldError(f"accepted: a list, nested {DEEPEST} deep at most, without NUL characters")
    return value


def is_plain(value: Any) -> bool:
    """Whether JSON is nested at most DEEPEST deep, and every string in it can be stored."""
    level = [value]
    for _ in range(DEEPEST):
        if any(isinstance(item, str) and _UNSTORABLE.search(item) for item in level):
            return False
        level = [inner for item in level for inner in _inside(item)]
    return not any(
        isinstance(item, list | dict) or (isinstance(item, str) and _UNSTORABLE.search(item))
        for item in level
    )


def _inside(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return [*item, *item.values()]
    return item if isinstance(item, list) else []
