"""The day on the wall clock of a venue, held against the calendar of the standard library."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.recording.days import local_day
from tests.property.campaigns import zones

# What a datetime can tell in every time zone.
seconds = st.floats(-62_135_000_000, 253_402_000_000, allow_nan=False)


@given(seconds, zones | st.none())
def test_the_day_is_that_of_the_calendar(instant: float, zone: str | ZoneInfo | None) -> None:
    name = None if zone is None else str(zone)
    local = datetime.fromtimestamp(instant // 1, UTC).astimezone(ZoneInfo(name or "UTC"))
    assert local_day(instant, name) == local.date()


@pytest.mark.parametrize(
    ("instant", "day"),
    [(-62_135_596_800 - 50_400, date.min), (253_402_300_799 + 50_400, date.max)],
)
@pytest.mark.parametrize("zone", [None, "Pacific/Kiritimati", "America/Los_Angeles"])
def test_beyond_the_calendar_it_is_the_last_day_there_is(
    instant: int, day: date, zone: str | None
) -> None:
    assert local_day(instant, zone) == day
