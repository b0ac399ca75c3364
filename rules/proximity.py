"""Determines the zone of a detection: by its name, or by the strength of the signal."""

from functools import lru_cache

from rules.model import Zone

DEFAULT_TX_POWER = -59
IMMEDIATE_BELOW = 0.5
NEAR_UP_TO = 4.0

_NAMES = {zone.name.lower(): zone for zone in Zone}
USUAL_NAMES = {
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
