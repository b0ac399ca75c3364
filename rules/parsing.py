"""What people and devices write: a cache delay ("15 minutes", PT15M), a proximity, a signal."""

import re
from functools import lru_cache
from operator import mul

from rules.model import Zone

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

DELAY_UNITS = {
    "second": SECOND,
    "minute": MINUTE,
    "hour": HOUR,
    "day": DAY,
    "week": WEEK,
    "month": MONTH,
    "year": YEAR,
}
_LONGEST_TEXT = 64
_WORDS = re.compile(rf"(?:([0-9]+)\s+)?({'|'.join(DELAY_UNITS)})s?", re.IGNORECASE | re.ASCII)
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
        raise ValueError(f"not a delay; accepted: {ACCEPTED}")
    return seconds


def _seconds(text: str) -> int | None:
    if text.lower() == "none":
        return 0
    if words := _WORDS.fullmatch(text):
        return int(words[1] or 1) * DELAY_UNITS[words[2].lower()]
    if weeks := _WEEKS.fullmatch(text):
        return int(weeks[1]) * WEEK
    if duration := _DURATION.fullmatch(text):
        counts = (int(count or 0) for count in duration.groups())
        seconds: int = sum(map(mul, counts, _DURATION_UNITS))
        return seconds
    return None


DEFAULT_TX_POWER = -59
IMMEDIATE_BELOW = 0.5
NEAR_UP_TO = 4.0

_NAMES = {zone.name.lower(): zone for zone in Zone}
USUAL_NAMES: dict[object, Zone] = {
    spelling: zone
    for name, zone in _NAMES.items()
    for word in (name, name.capitalize(), name.upper())
    for spelling in (word, f"Proximity{word}", f"proximity{word}", str(zone.value))
}
_NUMBERS = {zone.value: zone for zone in Zone}


@lru_cache(maxsize=1024, typed=True)  # 1 is a zone, True is not
def parse_zone(value: str | int) -> Zone:
    """The zone for a name or a number.

    Accepts a name in any case, with or without a leading "Proximity", and CoreLocation's numbers
    0..3, also as a digit. Raises ValueError for anything else, booleans included.
    """
    if isinstance(value, str):
        zone = USUAL_NAMES.get(value)
        if zone is None:
            zone = _NAMES.get(value.lower().removeprefix("proximity"))
    else:
        zone = None if isinstance(value, bool) else _NUMBERS.get(value)
    if zone is None:
        raise ValueError("not a proximity; accepted: immediate, near, far, unknown, or 0 to 3")
    return zone


def zone_from_rssi(rssi: float, tx_power: float | None = None, exponent: float = 2.0) -> Zone:
    """The zone for a signal of `rssi` dBm from a beacon of `tx_power` dBm at one metre.

    `exponent` is the path-loss exponent, greater than 0. An rssi of 0 or more is no
    measurement: UNKNOWN.
    """
    if not rssi < 0:
        return Zone.UNKNOWN
    power = DEFAULT_TX_POWER if tx_power is None else tx_power
    try:
        metres: float = 10.0 ** ((power - rssi) / (10 * exponent))
    except OverflowError:
        return Zone.FAR if power > rssi else Zone.IMMEDIATE
    if metres < IMMEDIATE_BELOW:
        return Zone.IMMEDIATE
    return Zone.NEAR if metres <= NEAR_UP_TO else Zone.FAR
