"""A small catalog to record into, and recorders over it, on both databases."""

from collections.abc import AsyncIterator

import pytest

from tests.recorder.scene import Rig, Scene, open_scene


@pytest.fixture
async def scene(database_url: str) -> AsyncIterator[Scene]:
    async with open_scene(database_url) as scene:
        yield scene


@pytest.fixture
def rig(scene: Scene) -> Rig:
    return Rig(scene)
