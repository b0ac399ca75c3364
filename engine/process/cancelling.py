"""Cancels tasks reliably."""

import asyncio
from collections.abc import Iterable
from typing import Any

_AGAIN_SECONDS = 0.2


async def cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel all tasks and await their end. Raises none of their errors.

    A cancellation can get lost: redis-py's cluster client swallows one that comes while it looks up
    its nodes. So each task is cancelled again until it ends.
    """
    tasks = set(tasks)
    pending = {task for task in tasks if not task.done()}
    while pending:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=_AGAIN_SECONDS)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it
