"""Waiting for a condition, with a deadline, instead of sleeping and hoping."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

_PAUSE_SECONDS = 0.02


async def eventually(
    condition: Callable[[], Any],
    *,
    deadline: float = 90.0,
    what: str = "",
    pause: float = _PAUSE_SECONDS,
) -> Any:
    """Return the first truthy value of `condition` (plain or async); look every 20 ms.

    Raises AssertionError, with `what` and the last value seen, after `deadline` seconds: long,
    because it costs nothing where all is well, and a busy machine may stand still for seconds.
    """
    give_up = time.monotonic() + deadline
    while True:
        seen = condition()
        value = await seen if inspect.isawaitable(seen) else seen
        if value:
            return value
        if time.monotonic() > give_up:
            raise AssertionError(f"not within {deadline} s: {what or condition}; last: {value!r}")
        await asyncio.sleep(pause)


def wait_until(condition: Callable[[], bool], *, what: str, deadline: float = 90.0) -> None:
    """`eventually` for plain code. Raises TimeoutError, naming `what`."""
    give_up = time.monotonic() + deadline
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError(f"not within {deadline} s: {what}")
        time.sleep(_PAUSE_SECONDS)
