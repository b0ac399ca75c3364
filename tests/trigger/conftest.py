"""The trigger of this folder's tests."""

from collections.abc import AsyncIterator

import pytest

from tests.trigger.pushed import PushedTrigger, pushed_trigger


@pytest.fixture
async def trigger(
    embedded_kafka: str, embedded_redis_url: str, sqlite_url: str, topic_prefix: str
) -> AsyncIterator[PushedTrigger]:
    async with pushed_trigger(
        embedded_kafka, embedded_redis_url, sqlite_url, topic_prefix
    ) as pushed:
        yield pushed
