"""A campaign without content in the index could not fire, and its reason is the same as with it."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from catalog.index.reading import may_fire
from engine.process.settings import Settings
from rules.model import CampaignSnapshot
from rules.schedule import Schedule
from tests.rules.campaigns import DAY, anchors, campaigns, instants, zones

_LIMITS = Settings.model_fields["max_detection_age"].metadata
_LATEST = next(limit.le for limit in _LIMITS if hasattr(limit, "le"))


@st.composite
def cases(draw: st.DrawFn) -> tuple[CampaignSnapshot, float]:
    zone = draw(zones)
    near = draw(anchors(zone))
    campaign = draw(campaigns(zone, near))
    return campaign, draw(instants(near, campaign))


@given(cases(), st.floats(-_LATEST, _LATEST), st.integers(-60, 60))
def test_content_is_there_when_it_may_be_sent(
    case: tuple[CampaignSnapshot, float], age: float, days: int
) -> None:
    """For every detection that the trigger would still look at."""
    campaign, instant = case
    now = instant + days * DAY
    reason = Schedule(campaign).verdict(now - age).reason
    bare = campaign.without_content()
    awake = may_fire(
        active=campaign.active,
        venue_active=True,
        end=campaign.end,
        now=datetime.fromtimestamp(now, UTC),
    )
    if not awake:
        assert reason is not None
        assert Schedule(bare).verdict(now - age).reason is reason
    assert Schedule(bare).verdict(now - age).reason is not None
