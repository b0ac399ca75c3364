"""Campaigns for tests that only count them."""

import pytest

from rules.model import Campaign
from tests.unit.engine.test_compose import campaign


@pytest.fixture
def two_campaigns() -> tuple[Campaign, ...]:
    return campaign(id=1), campaign(id=2)
