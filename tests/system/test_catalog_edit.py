"""An edit of the catalog reaches a running trigger within a second, even if its writer died."""

import asyncio
import multiprocessing
import os
import time
from typing import Any

import pytest

from catalog.database import open_database
from catalog.models import Campaign
from engine.process.lifecycle import cancel
from tests.servers.proximity import Rig
from tests.servers.waiting import eventually
from tests.system.scene import Scene
from tests.system.topics import TopicSet
from tests.system.traffic import detection
from tests.system.world import small_world

pytestmark = pytest.mark.alone

WITHIN = 1.0
TRIES = 3  # an edit that is slow is so each time; a busy machine is not
SPAWNED = multiprocessing.get_context("spawn")


def switch_off_and_die(url: str, campaign: int, committed_at: Any) -> None:
    """In a process that ends with its commit."""

    async def edit() -> None:
        async with open_database(url).write.begin() as session:
            (await session.get_one(Campaign, campaign)).active = False
        committed_at.value = time.time()
        os._exit(0)

    asyncio.run(edit())


async def test_an_edit_takes_effect_within_a_second(
    rig: Rig, topics: TopicSet, redis_url: str, postgres_url: str
) -> None:
    rig.settings |= {"REDIS_URL": redis_url, "DATABASE_URL": postgres_url}
    scene = await Scene(rig, topics, small_world(beacons=TRIES)).begin()
    trigger = await rig.ready("trigger")

    async def seconds(number: int) -> float:
        """From the commit to the last detection that was decided without the edit."""
        beacon = scene.world.beacons[number]
        edited = next(e for e in scene.world.campaigns if e.name == f"always {number}")
        sent: dict[str, float] = {}
        committed_at = SPAWNED.Value("d", 0.0)
        arguments = postgres_url, edited.id, committed_at
        process = SPAWNED.Process(target=switch_off_and_die, args=arguments)

        async def detect() -> None:
            async with topics.publishing() as send:
                while True:
                    udid, now = f"{number} {len(sent)}", time.time()
                    await (await send(detection(beacon, udid)))
                    sent[udid] = now
                    await asyncio.sleep(0.05)  # the pace of detections

        async def wrong() -> list[float]:
            """When the detections so far were sent whose decisions do not know the edit."""
            known = dict(sent)
            await topics.until_done()
            fired = await scene.fired()
            return [at for udid, at in known.items() if edited.name in fired.get(udid, ())]

        async def is_in_effect() -> bool:
            newest = max(sent.values(), default=0.0)
            return newest > committed_at.value > 0 and newest not in await wrong()

        detecting = asyncio.create_task(detect())
        process.start()
        await eventually(is_in_effect, what="it fires no more")
        await cancel([detecting])
        await asyncio.to_thread(process.join)
        assert process.exitcode == 0
        late: list[float] = [at - committed_at.value for at in await wrong()]
        return max(late, default=0.0)

    delays: list[float] = []
    while not delays or delays[-1] >= WITHIN:
        assert len(delays) < TRIES, delays
        delays.append(await seconds(len(delays)))
    await trigger.stop()
