"""Company A's service in a process of its own.

The processor time that it uses is not taken from company B's service, nor from what measures B.
"""

import asyncio
import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.connectors.services import HOSTILE, together
from tests.servers.http_service import Answer, ReceivedRequest, hanging, serving
from tests.servers.waiting import wait_until

KINDS = HOSTILE | {"hangs": hanging}
_PROCESSES = multiprocessing.get_context("spawn")
_START_SECONDS = 30.0
_END_SECONDS = 10.0


class ServiceProcess:
    """A running service. `requested` is the number of requests that it has received."""

    def __init__(self, port: Any, requested: Any) -> None:
        self._port = port
        self._requested = requested

    @property
    def url(self) -> str:
        """The url of the service."""
        return f"http://127.0.0.1:{self._port.value}/"

    @property
    def requested(self) -> int:
        """The number of received requests."""
        return int(self._requested.value)


@contextmanager
def serving_in_process(kind: str, at_once: int) -> Iterator[ServiceProcess]:
    """A service that is hostile in this way as soon as it has `at_once` requests."""
    port, requested = _PROCESSES.Value("i", 0), _PROCESSES.Value("i", 0)
    process = _PROCESSES.Process(target=_serve, args=(kind, at_once, port, requested), daemon=True)
    process.start()
    try:
        wait_until(lambda: port.value > 0, deadline=_START_SECONDS, what="A's service")
        yield ServiceProcess(port, requested)
        assert process.is_alive()
    finally:
        process.terminate()
        process.join(_END_SECONDS)
        process.close()


def _serve(kind: str, at_once: int, port: Any, requested: Any) -> None:
    asyncio.run(_until_terminated(together(KINDS[kind], at_once), port, requested))


async def _until_terminated(answer: Answer, port: Any, requested: Any) -> None:
    async def counted(received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        requested.value += 1
        await answer(received, writer)

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with serving(counted) as service:
        port.value = service.port
        await ended.wait()
