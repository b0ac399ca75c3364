"""Publishers and administration on the brokers of the tests."""

from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from engine.kafka.producer import Publisher
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings


@pytest.fixture
def settings(broker: str) -> Settings:
    return load_settings(kafka_bootstrap_servers=broker)


@pytest.fixture
def topic(topic_prefix: str) -> str:
    return f"{topic_prefix}published"


@pytest.fixture
async def publisher(settings: Settings) -> AsyncIterator[Publisher]:
    one = Publisher.from_settings(settings)
    await one.start()
    yield one
    await one.close()


@pytest.fixture
async def admin(kafka_bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await client.start()
    yield client
    await client.close()
