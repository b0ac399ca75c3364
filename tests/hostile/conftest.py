"""Fixtures that the hostile suites share."""

from collections.abc import AsyncIterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient


@pytest.fixture
async def admin(kafka_bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=kafka_bootstrap)
    await client.start()
    yield client
    await client.close()
