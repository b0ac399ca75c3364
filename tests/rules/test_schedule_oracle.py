from datetime import datetime
from math import inf
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from rules.model import CampaignSnapshot
from rules.schedule import LocalClock, schedule_of
from tests.rules import schedule_oracle
from tests.rules.campaigns import DAY, anchors, campaigns, instants, zones


@st.composite
def meetings(draw: st.DrawFn) -> tuple[CampaignSnapshot, list[float]]:
    zone = draw(zones)
    near = draw(anchors(zone))
    chosen = draw(campaigns(zone, near))
    return chosen, draw(st.lists(instants(near, chosen), min_size=1, max_size=6))


@settings(max_examples=1000)
@given(meetings(), st.lists(st.floats(0, 1, exclude_max=True), min_size=6, max_size=6))
def test_the_verdict_is_that_of_the_oracle_and_constant_where_it_says_so(
    meeting: tuple[CampaignSnapshot, list[float]], shares: list[float]
) -> None:
    chosen, moments = meeting
    schedule = schedule_of(chosen)
    for t in moments:
        assert schedule.verdict(t).reason == schedule_oracle.verdict(chosen, t)
    t = moments[0]
    reason, since, until = schedule.verdict(t)
    assert since <= t < until
    begin = t - 500 * DAY if since == -inf else since
    end = t + 500 * DAY if until == inf else until
    inside = [min(begin + share * (end - begin), end - 0.001) for share in shares]
    for other in (begin, *inside, end - 1, end - 0.001):
        assert schedule_oracle.verdict(chosen, other) == reason
        assert schedule.verdict(other).reason == reason


@given(zones.filter(bool), st.integers(-2_000_000_000, 4_000_000_000), st.data())
def test_a_stretch_has_one_offset(zone: str, instant: int, data: st.DataObject) -> None:
    since, until, offset = LocalClock(ZoneInfo(zone)).stretch_at(instant)
    assert since <= instant < until
    for other in (since, until - 1, data.draw(st.integers(since, until - 1))):
        seen = datetime.fromtimestamp(other, ZoneInfo(zone)).utcoffset()
        assert seen is not None
        assert seen.total_seconds() == offset
