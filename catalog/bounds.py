"""Bounds of size and time: lists that fit one statement or call, and work that ends in time."""

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

T = TypeVar("T")
# Work of `within`, which may have abandoned it. The event loop holds tasks only weakly.
_running: set[asyncio.Future[Any]] = set()


def chunked(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items in order, in lists of `size` that fit a statement; the last may be shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


async def within(seconds: float, work: Awaitable[T]) -> T:
    """The result of `work`. Raises TimeoutError after `seconds`, and the errors of `work`.

    Work that does not end soon after its cancellation (a connection to a database that hangs takes
    seconds more) is left to end by itself.
    """
    task = asyncio.ensure_future(work)
    _running.add(task)
    task.add_done_callback(_forget)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()  # unless it is done
    if not task.done():
        raise TimeoutError(f"no answer within {seconds:g} s")
    return task.result()


def _forget(task: asyncio.Future[Any]) -> None:
    _running.discard(task)
    if not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it as forgotten
