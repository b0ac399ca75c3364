"""An edit of the catalog reaches a running trigger within a second, even if its writer died."""

import asyncio
import multiprocessing
import os
import time
from typing import Any

import pytest
from sqlalchemy.orm import selectinload

from catalog.database import open_database
from catalog.models import Beacon, Campaign
from engine.process.lifecycle import cancel
from tests.servers.waiting import eventually
from tests.system.rig import Rig
from tests.system.scene import Scene
from tests.system.topics import TopicSet
from tests.system.traffic import detection
from tests.system.world import UUIDS, small_world

pytestmark = pytest.mark.alone

WITHIN = 1.0
NEW = {"uuid": UUIDS[0], "major": 0, "minor": 5000}
SPAWNED = multiprocessing.get_context("spawn")


def edit_and_die(url: str, what: str, number: int, committed_at: Any) -> None:
    """One edit through the ORM, in a process that ends with its commit."""

    async def edit() -> None:
        async with open_database(url).write.begin() as session:
            if what == "delete":
                await session.delete(await session.get_one(Beacon, number))
            elif what == "add":
                with_tags = [selectinload(Beacon.tags)]
                tagged = await session.get_one(Beacon, number, options=with_tags)
                fields = {"venue_id": tagged.venue_id, "name": "new", "proximity": "far", **NEW}
                session.add(Beacon(**fields, active=True, tags=list(tagged.tags)))
            else:
                (await session.get_one(Campaign, number)).active = what == "activate"
        committed_at.value = time.time()
        os._exit(0)

    asyncio.run(edit())


async def test_an_edit_takes_effect_within_a_second(
    rig: Rig, topics: TopicSet, redis_url: str, postgres_url: str
) -> None:
    rig.environment |= {"REDIS_URL": redis_url, "DATABASE_URL": postgres_url}
    world = small_world(beacons=4)
    first, _, third, last = world.beacons
    world.tag(world.campaign(last.venue, "tagged", []), "word", [last])
    scene = await Scene(rig, topics, world).begin()
    trigger = await rig.ready("trigger")
    always = world.campaigns[0]
    assert always.beacons == [first]

    async def seconds(what: str, number: int, beacon: Beacon, name: str, fires: bool) -> float:
        """From the commit to the last detection that was decided without the edit."""
        sent: dict[str, float] = {}
        committed_at = SPAWNED.Value("d", 0.0)
        arguments = (postgres_url, what, number, committed_at)
        process = SPAWNED.Process(target=edit_and_die, args=arguments)

        async def detect() -> None:
            async with topics.publishing() as send:
                while True:
                    udid, now = f"{what} {len(sent)}", time.time()
                    await send(detection(beacon, udid))
                    await send.settle()
                    sent[udid] = now
                    await asyncio.sleep(0.05)  # the pace of detections

        async def wrong() -> list[float]:
            """When the detections so far were sent whose decisions do not know the edit."""
            known = dict(sent)
            await topics.until_done()
            fired = await scene.fired()
            return [at for udid, at in known.items() if (name in fired.get(udid, ())) is not fires]

        async def is_in_effect() -> bool:
            newest = max(sent.values(), default=0.0)
            return newest > committed_at.value > 0 and newest not in await wrong()

        detecting = asyncio.create_task(detect())
        process.start()
        await eventually(is_in_effect, what=what)
        await cancel([detecting])
        await asyncio.to_thread(process.join)
        assert process.exitcode == 0
        late: list[float] = [at - committed_at.value for at in await wrong()]
        return max(late, default=0.0)

    delays = [
        await seconds("deactivate", always.id, first, always.name, False),
        await seconds("add", last.id, Beacon(**NEW), "tagged", True),
        await seconds("activate", always.id, first, always.name, True),
        await seconds("delete", third.id, third, "always 2", False),
    ]
    await trigger.stop()
    # (A machine that stands still delays one of them.)
    assert sorted(delays)[2] < WITHIN, delays
    assert max(delays) < 10 * WITHIN, delays
