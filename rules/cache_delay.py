"""The cache delay of a campaign, "15 minutes" or PT15M, as whole seconds."""

import re
from operator import mul

SECOND = 1
MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY
MONTH = 30 * DAY
YEAR = 365 * DAY
LONGEST_DELAY = 100 * YEAR

ACCEPTED = (
    "none; second, minute, hour, day, week, month or year, singular or plural, "
    'with or without a whole number before ("15 minutes"); '
    "or an ISO 8601 duration of whole numbers (PT15M); at most 100 years"
)

_UNITS = {
    "second": SECOND,
    "minute": MINUTE,
    "hour": HOUR,
    "day": DAY,
    "week": WEEK,
    "month": MONTH,
    "year": YEAR,
}
_LONGEST_TEXT = 64
_WORDS = re.compile(rf"(?:([0-9]+)\s+)?({'|'.join(_UNITS)})s?", re.IGNORECASE | re.ASCII)
_WEEKS = re.compile(r"P([0-9]+)W", re.IGNORECASE | re.ASCII)
_DURATION = re.compile(
    r"P(?=[0-9T])(?:([0-9]+)Y)?(?:([0-9]+)M)?(?:([0-9]+)D)?"
    r"(?:T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)S)?)?",
    re.IGNORECASE | re.ASCII,
)
_DURATION_UNITS = (YEAR, MONTH, DAY, HOUR, MINUTE, SECOND)


def parse_delay(text: str) -> int:
    """The least delay between two sends, in seconds; 0 for none.

    A month is 30 days and a year 365. Raises ValueError, naming what is accepted, for any
    other text and for more than 100 years.
    """
    seconds = _seconds(text.strip()) if len(text) <= _LONGEST_TEXT else None
    if seconds is None or seconds > LONGEST_DELAY:
        raise ValueError(f"not a cache delay; accepted: {ACCEPTED}")
    return seconds


def _seconds(text: str) -> int | None:
    if text.lower() == "none":
        return 0
    if words := _WORDS.fullmatch(text):
        return int(words[1] or 1) * _UNITS[words[2].lower()]
    if weeks := _WEEKS.fullmatch(text):
        return int(weeks[1]) * WEEK
    if duration := _DURATION.fullmatch(text):
        counts = (int(count or 0) for count in duration.groups())
        seconds: int = sum(map(mul, counts, _DURATION_UNITS))
        return seconds
    return None
