"""Triggers of this folder's tests."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeAlias

import pytest

from tests.trigger.pushed import PushedTrigger, pushed_trigger

MakeTrigger: TypeAlias = Callable[..., Awaitable[PushedTrigger]]


@pytest.fixture
async def trigger_with(
    embedded_kafka: str, embedded_redis_url: str, sqlite_url: str, topic_prefix: str
) -> AsyncIterator[MakeTrigger]:
    """Makes a trigger with these settings, which ends with the test."""
    servers = embedded_kafka, embedded_redis_url, sqlite_url, topic_prefix
    async with AsyncExitStack() as stack:
        yield lambda **more: stack.enter_async_context(pushed_trigger(*servers, **more))


@pytest.fixture
async def trigger(trigger_with: MakeTrigger) -> PushedTrigger:
    return await trigger_with()
