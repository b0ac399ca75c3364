"""The default days of statistics: a venue's day may have begun before UTC's."""

from datetime import UTC, date, datetime

import pytest

from catalog.statistics import latest_week


@pytest.mark.parametrize(
    ("hour", "last"),
    [(0, date(2026, 11, 21)), (9, date(2026, 11, 21)), (10, date(2026, 11, 22))],
)
def test_it_ends_with_the_day_that_has_begun_in_the_east(hour: int, last: date) -> None:
    now = datetime(2026, 11, 21, hour, 59 * (hour == 9), tzinfo=UTC)
    assert latest_week(now) == (date(2026, 11, 15), last)
