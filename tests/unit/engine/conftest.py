"""Campaigns for tests that only count them."""

import pytest

from rules.model import CampaignSnapshot
from tests.unit.engine.test_compose import campaign


@pytest.fixture
def two_campaigns() -> tuple[CampaignSnapshot, ...]:
    return campaign(id=1), campaign(id=2)
