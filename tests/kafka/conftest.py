"""Settings and publishers on the brokers of the tests."""

from collections.abc import AsyncIterator

import pytest

from engine.kafka.producer import Publisher
from engine.process.settings import Settings
from tests.kafka.members import settings_for


@pytest.fixture
def settings(broker: str, topic_prefix: str) -> Settings:
    """With small batches."""
    return settings_for(broker, topic_prefix, batch_records=50)


@pytest.fixture
def topic(topic_prefix: str) -> str:
    return f"{topic_prefix}topic"


@pytest.fixture
async def publisher(settings: Settings) -> AsyncIterator[Publisher]:
    one = Publisher(settings)
    await one.start()
    yield one
    await one.close()
