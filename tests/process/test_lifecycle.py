"""Services: which of them may end, and what an end leads to."""

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

import pytest

from engine.cli.run import _serve
from engine.process.errors import ProcessError
from engine.process.lifecycle import cancel, run_services
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings


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


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> Coroutine[Any, Any, None]:
    """Swallows its first cancellation."""
    monkeypatch.setattr("engine.process.lifecycle._CANCEL_SECONDS", 0.1)

    async def wait() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    return wait()


async def test_a_task_that_swallows_it_once_is_cancelled_again(
    deaf: Coroutine[Any, Any, None],
) -> None:
    task = asyncio.create_task(deaf)
    await asyncio.sleep(0)
    await cancel([task])
    assert task.cancelled()


async def test_a_process_ends_though_a_client_left_a_task(deaf: Coroutine[Any, Any, None]) -> None:
    left: list[asyncio.Task[None]] = []

    async def serve(_settings: Settings, _stop: asyncio.Event) -> None:
        left.append(asyncio.create_task(deaf))
        await asyncio.sleep(0)

    await _serve(load_settings(redis_url="redis://127.0.0.1:9"), serve)
    assert left[0].cancelled()
