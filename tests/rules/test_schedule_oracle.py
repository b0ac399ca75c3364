from datetime import datetime, timedelta
from math import inf
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rules.model import CampaignSnapshot
from rules.schedule import LocalClock, schedule_of
from tests.rules import schedule_oracle
from tests.rules.campaigns import (
    DAY,
    ZONES,
    anchors,
    campaigns,
    clock_changes,
    instants,
    zones,
)
from tests.rules.records import campaign, epoch


@st.composite
def meetings(draw: st.DrawFn) -> tuple[CampaignSnapshot, list[float]]:
    zone = draw(zones)
    near = draw(anchors(zone))
    chosen = draw(campaigns(zone, near))
    return chosen, draw(st.lists(instants(near, chosen), min_size=1, max_size=6))


@settings(max_examples=1000)
@given(meetings())
def test_the_verdict_is_that_of_the_oracle(meeting: tuple[CampaignSnapshot, list[float]]) -> None:
    chosen, moments = meeting
    schedule = schedule_of(chosen)
    for t in moments:
        assert schedule.verdict(t).reason == schedule_oracle.verdict(chosen, t)


@settings(max_examples=500)
@given(meetings(), st.lists(st.floats(0, 1, exclude_max=True), min_size=6, max_size=6))
def test_the_verdict_is_constant_where_it_says_so(
    meeting: tuple[CampaignSnapshot, list[float]], shares: list[float]
) -> None:
    chosen, moments = meeting
    schedule = schedule_of(chosen)
    t = moments[0]
    reason, since, until = schedule.verdict(t)
    assert since <= t < until
    begin = t - 500 * DAY if since == -inf else since
    end = t + 500 * DAY if until == inf else until
    inside = [min(begin + share * (end - begin), end - 0.001) for share in shares]
    for other in (begin, *inside, end - 1, end - 0.001):
        assert schedule_oracle.verdict(chosen, other) == reason
        assert schedule.verdict(other).reason == reason


@pytest.mark.parametrize("zone", [zone for zone in ZONES if zone])
def test_all_around_the_changes_of_a_year(zone: str) -> None:
    for change in clock_changes(zone, 2010) or (epoch("2010-06-01T00:00:00Z"),):
        wall = datetime.fromtimestamp(change, ZoneInfo(zone))
        now = wall.hour * 60 + wall.minute
        for before, after in ((60, 15), (-15, -60), (45, 45), (0, 90), (120, 0)):
            start, end = (now - before) % 1440, (now + after) % 1440
            _compare_around(change, _on_the_day(wall, start, end))


def _on_the_day(wall: datetime, start: int, end: int) -> CampaignSnapshot:
    midnight = wall.replace(hour=0, minute=0, second=0)
    return campaign(
        start=midnight - timedelta(days=1),
        end=midnight,
        start_minute=start,
        end_minute=end,
        weekdays=127 - (1 << (wall.weekday() - 1) % 7),
        time_zone=str(wall.tzinfo),
    )


def _compare_around(change: float, chosen: CampaignSnapshot) -> None:
    schedule = schedule_of(chosen)
    quarters = [
        change + minute * 60 + second for minute in range(-600, 600, 15) for second in (-1, 0)
    ]
    expected = {t: schedule_oracle.verdict(chosen, t) for t in quarters}
    for t in quarters:
        reason, since, until = schedule.verdict(t)
        assert {expected[other] for other in quarters if since <= other < until} == {reason}


@given(zones.filter(bool), st.integers(-2_000_000_000, 4_000_000_000), st.data())
def test_a_stretch_has_one_offset(zone: str, instant: int, data: st.DataObject) -> None:
    since, until, offset = LocalClock(ZoneInfo(zone)).stretch_at(instant)
    assert since <= instant < until
    for other in (since, until - 1, data.draw(st.integers(since, until - 1))):
        seen = datetime.fromtimestamp(other, ZoneInfo(zone)).utcoffset()
        assert seen is not None
        assert seen.total_seconds() == offset
