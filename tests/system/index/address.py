"""An address whose server changes, like a service name or a virtual address."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Address:
    """Forwards connections to `port`; `move` breaks those that are open."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()

    def move(self, port: int) -> None:
        """Forward to another server from now on."""
        self.target = port
        for writer in self._open:
            writer.close()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            self.move(0)
            await asyncio.sleep(0.05)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with suppress(OSError):
            back, forth = await asyncio.open_connection("127.0.0.1", self.target)
            self._open.add(forth)
            await asyncio.wait(
                [
                    asyncio.create_task(_pump(reader, forth)),
                    asyncio.create_task(_pump(back, writer)),
                ]
            )
            self._open.discard(forth)
        writer.close()
        self._open.discard(writer)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    with suppress(OSError):
        sink.close()
