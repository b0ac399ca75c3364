"""A cancellation that gets lost is repeated."""

import asyncio

from engine.process.cancelling import cancel


async def test_an_ended_task_is_left_alone() -> None:
    async def fail() -> None:
        raise LookupError

    task = asyncio.create_task(fail())
    await asyncio.wait([task])
    await cancel([task])
    assert isinstance(task.exception(), LookupError)
    await cancel([])


async def test_a_task_that_swallows_it_once_is_cancelled_again() -> None:
    swallowed = 0

    async def deaf() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 2:
                    raise

    task = asyncio.create_task(deaf())
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await cancel([task])
    assert task.cancelled()
    assert swallowed == 2


async def test_a_task_that_tidies_up_is_waited_for() -> None:
    tidied = False

    async def tidy() -> None:
        nonlocal tidied
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(5):
                await asyncio.sleep(0)
            tidied = True

    task = asyncio.create_task(tidy())
    await asyncio.sleep(0)
    await cancel([task])
    assert tidied
