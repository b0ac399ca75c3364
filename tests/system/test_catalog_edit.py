"""An edit of the catalog reaches a running trigger within a second, even if its writer died."""

import asyncio
import multiprocessing
import os
import time
from typing import Any

from sqlalchemy.orm import selectinload

from catalog.database import open_database
from catalog.models import Beacon, Campaign
from engine.process.lifecycle import cancel
from tests.system.probe import Probe
from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.world import UUIDS, small_world

WITHIN = 1.0
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
                fields = {"venue_id": tagged.venue_id, "name": "new", "proximity": "far"}
                triple = {"uuid": UUIDS[0], "major": 0, "minor": 5000}
                session.add(Beacon(**fields, **triple, active=True, tags=list(tagged.tags)))
            else:
                (await session.get_one(Campaign, number)).active = what == "activate"
        committed_at.value = time.time()
        os._exit(0)

    asyncio.run(edit())


async def test_an_edit_takes_effect_within_a_second(
    rig: Rig, topics: TopicSet, redis_url: str, postgres_url: str
) -> None:
    world = small_world(beacons=4)
    first, _, third, last = world.beacons
    world.tag(world.campaign(last.venue, "tagged", []), "word", [last])
    await world.save(postgres_url)
    await topics.create()
    trigger = rig.trigger(REDIS_URL=redis_url, DATABASE_URL=postgres_url)
    await trigger.until_ready()
    campaign, new = first.campaigns[0].record, (UUIDS[0], 0, 5000)
    # What is done to which record, and what fires at which beacon afterwards.
    edits = [
        ("deactivate", campaign.id, first.triple, campaign.name, False),
        ("add", last.record.id, new, "tagged", True),
        ("activate", campaign.id, first.triple, campaign.name, True),
        ("delete", third.record.id, third.triple, third.campaigns[0].record.name, False),
    ]
    probe, committed = Probe(topics), []
    ticking = asyncio.create_task(probe.tick([first.triple, new, third.triple]))
    for what, number, *_ in edits:
        committed_at = SPAWNED.Value("d", 0.0)
        process = SPAWNED.Process(
            target=edit_and_die, args=(postgres_url, what, number, committed_at)
        )
        process.start()
        await asyncio.to_thread(process.join, 20)
        assert process.exitcode == 0
        committed.append(committed_at.value)
        await asyncio.sleep(committed[-1] + WITHIN + 0.3 - time.time())
    assert not ticking.done(), ticking
    await cancel([ticking])
    await topics.until_done()
    await trigger.stop()

    fired = await probe.fired()
    for (what, _, triple, name, fires_after), at in zip(edits, committed, strict=True):
        # The next edit may be of the same campaign.
        after = {
            name in fired.get(udid, set())
            for udid, (place, sent) in probe.sent.items()
            if place == triple and at + WITHIN < sent < at + WITHIN + 0.3
        }
        assert after == {fires_after}, what
