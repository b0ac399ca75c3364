"""The readers of numbers, flags, instants, times of day and delays."""

import math
import re
from datetime import UTC, datetime
from typing import Any

from catalog.fields.reader import FieldError, ValueReader, any_case, digits, reader
from rules.cache_delay import parse_delay

INT32 = 2**31 - 1
INT64 = 2**63 - 1
_TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:?\d\d)", re.ASCII
)
_TIME_OF_DAY = re.compile(r"(\d\d):(\d\d)", re.ASCII)
_DIGITS = re.compile(r"-?[0-9]{1,19}", re.ASCII)
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
_UNITS = any_case("second", "minute", "hour", "day", "week", "month", "year")
_DELAY = (
    rf"^(?:{any_case('none')}|(?:[0-9]{{1,2}} )?(?:{_UNITS})[Ss]?"
    r"|[Pp](?:[0-9]{1,3}[Dd])?[Tt][0-9]{1,4}[HhMmSs]|[Pp][0-9]{1,2}[WwDd])$"
)
_DECIMAL = re.compile(r"-?[0-9]{1,19}(?:\.[0-9]{1,17})?", re.ASCII)
_EXACT = 2**53  # above it a float stands for several whole numbers


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


@reader(type="string", pattern=_WRITTEN, examples=["2026-11-20T10:00:00+0100"])
def timestamp(value: Any) -> datetime:
    """An instant with the offset in which it was written."""
    try:
        if isinstance(value, str) and _TIMESTAMP.fullmatch(value):
            written = datetime.fromisoformat(value.upper())
            written.astimezone(UTC)
            return written
    except (ValueError, OverflowError):
        # Falls through: there is no such day, or no such instant in UTC.
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


@reader(type="string", pattern=_DELAY, examples=["day", "15 minutes", "PT15M"])
def cache(value: Any) -> str:
    """A cache delay that rules.cache_delay understands; stored as written."""
    try:
        if isinstance(value, str):
            parse_delay(value)
            return value
        parse_delay("")
    except ValueError as error:
        raise FieldError(str(error)) from None
    raise AssertionError("an empty cache delay is none")
