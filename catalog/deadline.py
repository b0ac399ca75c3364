"""Deadlines that hold, also for work that does not heed its cancellation at once."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

Result = TypeVar("Result")

# Work that was given up and has not ended yet: the loop itself keeps no hold of its tasks.
_given_up: set[asyncio.Future[Any]] = set()


async def within(seconds: float, work: Awaitable[Result]) -> Result:
    """The result of `work`. Raises TimeoutError after `seconds`, and what `work` raises.

    A connection to a database that hangs takes seconds more to be cancelled: `work` ends by
    itself then, and nobody waits for it.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
            _given_up.add(task)
            task.add_done_callback(_forget)
    if not task.done():
        raise TimeoutError(f"no answer within {seconds:g} s")
    return task.result()


def _forget(task: asyncio.Future[Any]) -> None:
    _given_up.discard(task)
    if not task.cancelled():
        task.exception()  # looked at, so that asyncio does not complain of it
