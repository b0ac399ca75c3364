"""A TCP relay on loopback, which can slow down or cut the connections to a server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from engine.process.lifecycle import cancel

_PIECE = 64 * 1024


class Link:
    """Relays connections to `port`. Each piece is delayed by `delay` seconds in both directions;
    many pieces may be in flight. While `is_cut`, every connection is closed."""

    def __init__(self, port: int) -> None:
        self.delay = 0.0
        self.is_cut = False
        self.port = 0
        self._target = port
        self._relays: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Link"]:
        """Listen within the context on `port`."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await cancel(self._relays)
            await server.wait_closed()

    async def cut(self) -> None:
        """Close every connection, and each new one at once."""
        self.is_cut = True
        await cancel(self._relays)

    def restore(self) -> None:
        """Relay connections again."""
        self.is_cut = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        try:
            # asyncio's streams complain of a handler that is cancelled.
            with contextlib.suppress(OSError, asyncio.CancelledError):
                if not self.is_cut:
                    await self._relay(reader, writer)
        finally:
            self._relays.discard(task)
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        ways = [asyncio.create_task(self._carry(*way)) for way in ((reader, back), (there, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel(ways)
            back.transport.abort()

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Relay one direction until the source ends, which closes both directions."""
        waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sending = asyncio.create_task(self._send(waiting, target))
        now = asyncio.get_running_loop().time
        try:
            with contextlib.suppress(OSError):
                while piece := await source.read(_PIECE):
                    waiting.put_nowait((now() + self.delay, piece))
        finally:
            await cancel([sending])

    async def _send(
        self, waiting: "asyncio.Queue[tuple[float, bytes]]", target: asyncio.StreamWriter
    ) -> None:
        now = asyncio.get_running_loop().time
        while True:
            due, piece = await waiting.get()
            if due > now():
                await asyncio.sleep(due - now())  # the delay of the link
            with contextlib.suppress(OSError):
                target.write(piece)
                await target.drain()
