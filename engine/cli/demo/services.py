"""What runs beside the replay: HTTP services on loopback, started and stopped with the demo."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from engine.process.errors import ServiceDiedError
from engine.process.http_server import listen

_STOP_SECONDS = 30.0

Application = Callable[[dict[str, Any], Any, Any], Coroutine[Any, Any, None]]


class _Server(uvicorn.Server):
    """Leaves the process's signals to the command."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(application: Application, *, name: str) -> AsyncIterator[int]:
    """Serve on a free port of loopback; that port. Raises PortInUseError."""
    listener = listen("127.0.0.1", 0, setting=name)
    config = uvicorn.Config(
        application,
        log_config=None,
        access_log=False,
        lifespan="off",
        interface="asgi3",
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name=name)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await asyncio.wait([task], timeout=_STOP_SECONDS)
        task.cancel()
        listener.close()


class Running:
    """A service of the product in this loop: it is told to stop, and says what ended it before."""

    def __init__(self, name: str, serve: "Callable[[asyncio.Event], Coroutine[Any, Any, None]]"):
        self._stop = asyncio.Event()
        self.name = name
        self.task = asyncio.create_task(serve(self._stop), name=name)

    async def first(self, announced: "asyncio.Future[Any]") -> Any:
        """What the service announces at its start. Raises what kept it from starting."""
        await asyncio.wait([self.task, announced], return_when=asyncio.FIRST_COMPLETED)
        if not announced.done():
            self.raise_its_end()
        return announced.result()

    def raise_its_end(self) -> None:
        """Raise what ended the service although nothing told it to."""
        self.task.result()
        raise ServiceDiedError(f"{self.name} ended by itself")

    async def stop(self) -> None:
        """Tell it to stop, and wait for it."""
        self._stop.set()
        await asyncio.wait([self.task], timeout=_STOP_SECONDS)
        self.task.cancel()
