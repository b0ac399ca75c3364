"""Services: which of them may end, and what an end leads to."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from engine.process.errors import ProcessError
from engine.process.lifecycle import cancel, run_services


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


async def ends() -> None:
    return


@pytest.mark.parametrize(
    ("service", "is_background", "error"),
    [
        (fails(OSError("lost")), True, pytest.raises(OSError, match="lost")),
        (ends(), True, pytest.raises(ProcessError, match="service")),
        (fails(ValueError("bad")), False, pytest.raises(ValueError, match="bad")),
    ],
)
async def test_an_end_that_nobody_asked_for_drains_the_front_and_is_raised(
    service: Coroutine[None, None, None], is_background: bool, error: Any
):
    stop = asyncio.Event()
    log: list[str] = []
    front, background = {"front": until(stop, log, "front")}, {"service": service}
    if not is_background:
        front, background = front | background, {}
    with error:
        await run_services(foreground=front, background=background, stop=stop)
    assert log == ["front drained"]


async def test_a_task_that_swallows_it_once_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.process.lifecycle._CANCEL_SECONDS", 0.1)
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
    await cancel([task])
    assert task.cancelled()
    assert swallowed == 2
