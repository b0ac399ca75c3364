"""Services: which of them may end, and what an end leads to."""

import asyncio
import os
import signal

import pytest

from engine.process.errors import ServiceDiedError
from engine.process.lifecycle import cancel, run_services, stop_on_signals


async def until(stop: asyncio.Event, log: list[str], name: str) -> None:
    await stop.wait()
    log.append(f"{name} drained")


async def forever(log: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        log.append(f"{name} cancelled")


async def fails(error: Exception) -> None:
    raise error


async def test_the_background_lives_until_the_front_has_drained():
    stop = asyncio.Event()
    log: list[str] = []
    asyncio.get_running_loop().call_soon(stop.set)
    await run_services(
        foreground={"front": until(stop, log, "front")},
        background={"back": forever(log, "back")},
        stop=stop,
    )
    assert log == ["front drained", "back cancelled"]


async def test_an_error_in_the_background_drains_the_front_and_is_raised():
    stop = asyncio.Event()
    log: list[str] = []
    with pytest.raises(OSError, match="lost"):
        await run_services(
            foreground={"front": until(stop, log, "front")},
            background={"back": fails(OSError("lost"))},
            stop=stop,
        )
    assert log == ["front drained"]


async def test_a_background_service_that_just_ends_is_an_error():
    stop = asyncio.Event()
    log: list[str] = []

    async def ends() -> None:
        return

    with pytest.raises(ServiceDiedError, match="watch"):
        await run_services(
            foreground={"front": until(stop, log, "front")},
            background={"watch": ends()},
            stop=stop,
        )


async def test_one_front_failing_stops_the_other():
    stop = asyncio.Event()
    log: list[str] = []
    with pytest.raises(ValueError, match="bad"):
        await run_services(
            foreground={"one": fails(ValueError("bad")), "two": until(stop, log, "two")},
            background={},
            stop=stop,
        )
    assert log == ["two drained"]


async def test_a_signal_sets_stop():
    stop = asyncio.Event()
    with stop_on_signals(stop):
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(5):
            await stop.wait()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
