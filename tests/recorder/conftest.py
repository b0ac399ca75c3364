"""A small catalog to record into, on both databases."""

from collections.abc import AsyncIterator

import pytest

from tests.recorder.scene import Scene, open_scene


@pytest.fixture
async def scene(database_url: str) -> AsyncIterator[Scene]:
    async with open_scene(database_url) as scene:
        yield scene
