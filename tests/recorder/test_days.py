"""The local day at a venue, compared with the standard library's calendar."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from hypothesis import given
from hypothesis import strategies as st

from engine.recorder.days import DayRule, local_day
from tests.rules.campaigns import zones

# Of times at which all zones have offsets of whole quarters, that a datetime can hold.
seconds = st.floats(94_694_400, 253_402_000_000, allow_nan=False)


@given(seconds, zones | st.none())
def test_the_day_is_that_of_the_calendar(instant: float, zone: str | ZoneInfo | None) -> None:
    name = None if zone is None else str(zone)
    local = datetime.fromtimestamp(instant // 1, UTC).astimezone(ZoneInfo(name or "UTC"))
    assert local_day(instant, name) == local.date()


def test_a_venue_in_a_zone_that_this_host_does_not_know_has_days_in_utc() -> None:
    assert local_day(NOW, "Mars/Olympus") == local_day(NOW, None)


DAY = 86_400.0
NOW = 1_795_173_600.0
RULE = DayRule(max_age=300.0, retention=30 * DAY)
ZONES = st.sampled_from([None, "Pacific/Kiritimati", "America/Los_Angeles", "Europe/Paris"])
anything = st.floats(-1e17, 1e17)


@given(anything, anything, ZONES)
def test_no_record_makes_figures_of_a_day_on_which_none_can_come(
    detected_at: float, arrived_at: float, zone: str | None
) -> None:
    """However the phone and the producer date it: so the days of figures are bounded."""
    day = RULE.day_of(detected_at, arrived_at, NOW, zone)
    first = local_day(NOW - RULE.retention - RULE.max_age, zone)
    last = local_day(NOW + 2 * RULE.max_age, zone)
    assert day is None or first <= day <= last
