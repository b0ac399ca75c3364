"""An edit of the catalog reaches a running trigger within a second, even if its writer died."""

import asyncio
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.servers.waiting import eventually
from tests.system.probe import Probe
from tests.system.rig import Rig
from tests.system.topics import TopicSet
from tests.system.world import UUIDS, Triple, World, small_world

PROJECT = Path(__file__).parents[2]
WITHIN = 1.0
NEW_MINOR = 5000


@dataclass
class Edit:
    """An edit, the time of its commit, and the effect that must be visible `WITHIN` a second."""

    arguments: tuple[object, ...]
    triple: Triple
    campaign: str
    fires_after: bool
    committed_at: float = 0.0

    async def make(self, url: str) -> None:
        command = [sys.executable, "-m", "tests.system.edit_and_die", url]
        process = await asyncio.create_subprocess_exec(
            *command, *map(str, self.arguments), stdout=asyncio.subprocess.PIPE, cwd=PROJECT
        )
        async with asyncio.timeout(20):
            output, _ = await process.communicate()
        assert process.returncode == 0
        self.committed_at = float(output)


def edits(world: World) -> list[Edit]:
    first, second, third = world.beacons[:3]
    campaign = first.campaigns[0].record
    tagged = world.beacons[-1].campaigns[-1].record
    new = (UUIDS[0], 0, NEW_MINOR)
    tag = tagged.tags[0]
    return [
        Edit(("deactivate", campaign.id), first.triple, campaign.name, False),
        Edit(("add", second.venue.id, tag.id, NEW_MINOR), new, tagged.name, True),
        Edit(("activate", campaign.id), first.triple, campaign.name, True),
        Edit(("delete", third.record.id), third.triple, third.campaigns[0].record.name, False),
    ]


def _is_past(moment: float) -> bool:
    return time.time() > moment


@pytest.mark.timeout(120)
async def test_an_edit_takes_effect_within_a_second(
    rig: Rig, topics: TopicSet, redis_url: str, postgres_url: str
) -> None:
    world = small_world(beacons=4)
    plan = world.campaign(world.beacons[3].venue, "tagged", [])
    world.tag(plan, "word", [world.beacons[3]])
    await world.save(postgres_url)
    await topics.create()
    trigger = rig.trigger(REDIS_URL=redis_url, DATABASE_URL=postgres_url)
    await trigger.until_ready()
    probe = Probe(topics)
    planned = edits(world)
    async with probe.ticking({edit.triple for edit in planned}):
        for edit in planned:
            await edit.make(postgres_url)
            enough = edit.committed_at + WITHIN + 0.3
            await eventually(partial(_is_past, enough))
    await topics.until_done()
    await trigger.stop()

    fired = await probe.fired()
    for edit in planned:
        same = [other for other in planned if other.triple == edit.triple and other is not edit]
        later = [other.committed_at for other in same if other.committed_at > edit.committed_at]
        until = min(later, default=float("inf")) - 1.0  # the writer's own start and commit
        after = {
            edit.campaign in fired.get(udid, set())
            for udid, (triple, sent) in probe.sent.items()
            if triple == edit.triple and edit.committed_at + WITHIN < sent < until
        }
        assert after == {edit.fires_after}, edit
