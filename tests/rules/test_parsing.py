"""Zones and delays as they are written."""

from math import log10, nan

import pytest

from rules.model import Zone
from rules.parsing import (
    DAY,
    HOUR,
    LONGEST_DELAY,
    MONTH,
    YEAR,
    parse_delay,
    parse_zone,
    zone_from_rssi,
)


@pytest.mark.parametrize("zone", list(Zone))
@pytest.mark.parametrize("prefix", ["", "Proximity", "proximity", "PROXIMITY"])
def test_names_in_any_case_with_or_without_the_prefix(zone: Zone, prefix: str) -> None:
    name = zone.name
    assert parse_zone(int(zone)) is parse_zone(str(int(zone))) is zone
    for spelling in (name, name.lower(), name.title(), name.swapcase(), name[0].lower() + name[1:]):
        assert parse_zone(prefix + spelling) is zone


@pytest.mark.parametrize(
    "value",
    [4, -1, True, "", "01", "close", " near", "Proximity1"],
)
def test_refuses_any_other_zone(value: str | int) -> None:
    with pytest.raises(ValueError, match="immediate, near, far, unknown"):
        parse_zone(value)


@pytest.mark.parametrize(
    ("rssi", "tx_power", "zone"),
    [
        (-59, None, Zone.NEAR),
        (-79, -79, Zone.NEAR),
        (0, None, Zone.UNKNOWN),
        (nan, None, Zone.UNKNOWN),
        (-(10**400), -59, Zone.FAR),
        (-1, -(10**400), Zone.IMMEDIATE),
    ],
)
def test_zone_from_the_signal(rssi: float, tx_power: int | None, zone: Zone) -> None:
    assert zone_from_rssi(rssi, tx_power) is zone


def test_near_is_from_half_a_metre_up_to_and_including_four() -> None:
    half, four = 20 * log10(0.5), 20 * log10(4)
    assert zone_from_rssi(half, 2 * half) is Zone.NEAR
    assert zone_from_rssi(half, 2 * half - 0.001) is Zone.IMMEDIATE
    assert zone_from_rssi(-four, 0) is Zone.NEAR
    assert zone_from_rssi(-four, 0.001) is Zone.FAR


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("none", 0),
        ("Year", 365 * DAY),
        ("15 minutes", 900),
        ("  2 hours \n", 2 * HOUR),
        ("PT15M", 900),
        ("P1Y2M3DT4H5M6S", YEAR + 2 * MONTH + 3 * DAY + 4 * HOUR + 306),
        ("100 years", LONGEST_DELAY),
        ("15" + " " * 55 + "minutes", 900),  # 64 characters
    ],
)
def test_accepts_words_and_durations(text: str, seconds: int) -> None:
    assert parse_delay(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "15",
        "1.5 hours",
        "P1DT",
        "PT1.5H",
        "٣ days",
        "ſecond",
        "P100YT1S",
        "15" + " " * 56 + "minutes",
        "9" * 5000 + " days",
    ],
)
def test_refuses_anything_else_and_says_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match=r"15 minutes.*PT15M.*100 years"):
        parse_delay(text)
