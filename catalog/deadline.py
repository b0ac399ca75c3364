"""Deadlines that hold even if the work is slow to react to its cancellation."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

Result = TypeVar("Result")

# Abandoned work that still runs. The event loop itself holds tasks only weakly.
_abandoned: set[asyncio.Future[Any]] = set()


async def within(seconds: float, work: Awaitable[Result]) -> Result:
    """The result of `work`. Raises TimeoutError after `seconds`, and the errors of `work`.

    Work that does not end soon after its cancellation (a connection to a database that hangs takes
    seconds more) is left to end by itself.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            _abandoned.add(task)
            task.add_done_callback(_forget)
    if not task.done():
        raise TimeoutError(f"no answer within {seconds:g} s")
    return task.result()


def _forget(task: asyncio.Future[Any]) -> None:
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it as forgotten
