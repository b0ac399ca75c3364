"""Timestamps in and out."""

import pytest

from engine.kafka.timestamps import format_instant, parse

TEN = 1_795_165_200.0  # 2026-11-20T10:00:00+0100


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2026-11-20T10:00:00+0100", TEN),
        ("2026-11-20T10:00:00+01:00", TEN),
        ("2026-11-20T09:00:00Z", TEN),
        ("2026-11-20t09:00:00z", TEN),
        ("2026-11-20 09:00:00-00:00", TEN),
        ("2026-11-20T09:00:00.5Z", TEN + 0.5),
        ("2026-11-20T09:00:00.123999999Z", TEN + 0.123),
        ("2026-11-19T20:15:00-1245", TEN),
        (1_795_165_200_000, TEN),
        (1_795_165_200_001, TEN + 0.001),
        (0, 0.0),
    ],
)
def test_every_form_that_is_accepted(written: str | int, expected: float) -> None:
    assert parse(written) == expected


@pytest.mark.parametrize("ms", [1, 999, 123, 10, 501])
def test_milliseconds_are_the_same_number_however_they_are_written(ms: int) -> None:
    assert parse(f"2026-11-20T09:00:00.{ms:03}456Z") == parse(1_795_165_200_000 + ms)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "now",
        "2026-11-20",
        "2026-11-20T10:00:00",
        "2026-11-20T10:00+0100",
        "2026-11-20T10:00:60Z",
        "2026-11-20T24:00:00Z",
        "2026-02-30T10:00:00Z",
        "2026-11-20T10:00:00+25:00",
        "2026-11-20T10:00:00.Z",
        "２０26-11-20T10:00:00Z",
        "1795165200000",
        -1,
        253_402_300_800_000,
        10**30,
    ],
)
def test_anything_else_is_refused(written: str | int) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(written)


@pytest.mark.parametrize(("fraction", "second"), [(0.0, "00"), (0.999, "00"), (1.0, "01")])
def test_an_instant_is_written_in_whole_seconds_rounded_down(fraction: float, second: str) -> None:
    assert format_instant(TEN + fraction) == f"2026-11-20T09:00:{second}+0000"
