"""Loads of beacons follow each other, so that a load finds what the one before has cached."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_LONGEST_WAIT = 0.5  # seconds


class LoadSharing:
    """Turns of tasks that load beacons, one after the other.

    After a start all partitions need the same beacons at once. A task that waits for its turn finds
    in the cache what the others have loaded. A turn that takes half a second is waited for no
    longer: beacons of another company may be large, or Redis may answer that load late.
    """

    def __init__(self) -> None:
        self._ended: asyncio.Future[None] | None = None
        self._waited_for_until = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and hold it."""
        loop = asyncio.get_running_loop()
        while (before := self._ended) is not None and not before.done():
            left = self._waited_for_until - loop.time()
            if left <= 0:
                break
            await asyncio.wait([before], timeout=left)
        ended = self._ended = loop.create_future()
        self._waited_for_until = loop.time() + _LONGEST_WAIT
        try:
            yield
        finally:
            ended.set_result(None)
