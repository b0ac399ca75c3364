"""Loads of beacons that follow each other."""

import asyncio
from itertools import pairwise

from engine.process.cancelling import cancel
from engine.trigger.load_sharing import LoadSharing


async def test_turns_follow_each_other() -> None:
    loads, events = LoadSharing(), list[str]()

    async def load() -> None:
        async with loads.turn():
            events.append("begin")
            await asyncio.sleep(0)
            events.append("end")

    await asyncio.gather(*(load() for _ in range(20)))
    assert len(events) == 40
    assert all(one != other for one, other in pairwise(events))


async def test_a_load_that_does_not_end_holds_up_nobody_for_long() -> None:
    """The load of one company's beacons may be retried for ever, while the others go on."""
    loads, stuck = LoadSharing(), asyncio.Event()

    async def never_ends() -> None:
        async with loads.turn():
            stuck.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(never_ends())
    await stuck.wait()
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for _ in range(100):
        async with asyncio.timeout(30), loads.turn():
            pass
    assert 0.4 < loop.time() - begin < 25  # one wait of half a second, not one for each turn
    await cancel([task])


async def test_a_cancelled_load_gives_its_turn_away() -> None:
    loads = LoadSharing()
    begun = asyncio.Event()

    async def load() -> None:
        async with loads.turn():
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(load())
    await begun.wait()
    waiting = asyncio.create_task(loads.turn().__aenter__())
    await asyncio.sleep(0)
    await cancel([task])
    async with asyncio.timeout(30):
        await waiting
