"""Settings, publishers and administration on the brokers of the tests."""

from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from engine.kafka.producer import Publisher
from engine.process.settings import Settings
from tests.kafka.members import settings_for


@pytest.fixture
def settings(broker: str, topic_prefix: str) -> Settings:
    return settings_for(broker, topic_prefix)


@pytest.fixture
def topic(topic_prefix: str) -> str:
    return f"{topic_prefix}topic"


@pytest.fixture
async def publisher(settings: Settings) -> AsyncIterator[Publisher]:
    one = Publisher(settings)
    await one.start()
    yield one
    await one.close()


@pytest.fixture
async def admin(kafka_bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await client.start()
    yield client
    await client.close()
