"""What waits for the next step, taken all at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class BatchQueue(Generic[Item]):
    """Whatever was put in while the last batch was handled is the next batch."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._filled = asyncio.Event()

    def put(self, items: Iterable[Item]) -> None:
        """Add to the next batch."""
        self._items.extend(items)
        if self._items:
            self._filled.set()

    async def empty(self, handle: Callable[[list[Item]], Awaitable[None]]) -> None:
        """Handle batch after batch until cancelled. Raises what `handle` raises."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            items, self._items = self._items, []
            await handle(items)
