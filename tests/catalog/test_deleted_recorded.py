"""Deleted beacons for the recorder and verify: nothing is added, and no difference is reported."""

from collections.abc import AsyncIterator

import pytest

from catalog.models import Beacon, Venue
from engine.kafka.detections import BeaconKey, PlaceKey
from engine.recorder.ledger import ActivePlace
from tests.recorder.scene import Scene, open_scene


@pytest.fixture
async def scene(database_url: str) -> AsyncIterator[Scene]:
    async with open_scene(database_url) as scene:
        yield scene


def key(scene: Scene) -> BeaconKey:
    return BeaconKey(scene.beacon.uuid, scene.beacon.major, scene.beacon.minor)


async def places(scene: Scene) -> dict[PlaceKey, ActivePlace]:
    async with scene.ledger.transaction() as transaction:
        return dict(await transaction.active_places([key(scene)]))


@pytest.mark.parametrize("model", [Beacon, Venue])
async def test_a_detection_adds_nothing_from_the_deletion_on(scene: Scene, model: type):
    assert list(await places(scene)) == [key(scene)]
    async with scene.database.write.begin() as session:
        number = scene.beacon.id if model is Beacon else scene.venue.id
        await session.delete(await session.get_one(model, number))
    assert await places(scene) == {}
    # A notification that was under way is counted on its day.
    async with scene.ledger.transaction() as transaction:
        zones = await transaction.venue_time_zones([scene.venue.id])
    assert zones == {scene.venue.id: "Europe/Paris"}
