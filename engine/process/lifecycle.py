"""Starting and stopping: signals, named background services, the order of a shutdown.

A shutdown has these steps:
1. SIGTERM or SIGINT sets `stop`; /readyz says no.
2. Each consumer stops fetching; the batches in flight finish within DRAIN_TIMEOUT.
3. Their offsets are committed and the group is left.
4. Background services (index watch, outbox drain) are cancelled.
5. The publisher closes; then Redis and SQL, each within a deadline.
A second signal ends the process at once.
"""

import asyncio
import contextlib
import gc
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from types import FrameType
from typing import Any, NamedTuple, Self

import structlog

from engine.process.errors import ProcessError
from engine.process.failures import describe

log = structlog.get_logger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_YOUNG = 50_000  # allocations between collections; the default of 700 is one in 150 records
_OLDER = 20
_POLL_SECONDS = 0.5
_CANCEL_SECONDS = 5.0  # enough for what a service writes at its end


def tune_garbage_collector() -> None:
    """Exclude the present objects from garbage collection, and collect seldom.

    Call it once everything is imported. Records are in no reference cycles, so they are freed
    without the collector.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _OLDER, _OLDER)


@contextlib.contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` at the first SIGTERM or SIGINT; the second one ends the process."""
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        log.info("stopping", signal=number.name)
        stop.set()
        for each in _SIGNALS:
            loop.remove_signal_handler(each)
            signal.signal(each, _die)

    for each in _SIGNALS:
        loop.add_signal_handler(each, on_signal, each)
    try:
        yield
    finally:
        for each in _SIGNALS:
            loop.remove_signal_handler(each)


def _die(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


class ParentProcess(NamedTuple):
    """The parent of a worker: its process id, and the socket that it opened for the worker."""

    pid: int
    listener: socket.socket

    @classmethod
    def of(cls, words: str) -> Self:
        """Parse the text `pid:descriptor`. Raises ValueError, OSError."""
        pid, _, descriptor = words.partition(":")
        return cls(int(pid), socket.socket(fileno=int(descriptor)))


async def stop_without_parent(parent: int, stop: asyncio.Event) -> None:
    """Set `stop` when the process `parent` ends, so that none of its workers is left running."""
    while os.getppid() == parent:  # noqa: ASYNC110  # the system has no event for it
        await asyncio.sleep(_POLL_SECONDS)
    log.error("the parent of this worker is gone, stopping", parent=parent)
    stop.set()
    await asyncio.Event().wait()  # until cancelled, like every background service


async def run_services(
    *,
    foreground: dict[str, Coroutine[None, None, None]],
    background: dict[str, Coroutine[None, None, None]],
    stop: asyncio.Event,
) -> None:
    """Run all until every foreground service has ended; then cancel the background ones.

    Foreground services end by themselves once `stop` is set. The first error of any service
    sets `stop`, lets the foreground drain, and is raised. A background service that ends
    before it is cancelled is an error too.
    """
    front = {asyncio.create_task(work, name=name) for name, work in foreground.items()}
    back = {asyncio.create_task(work, name=name) for name, work in background.items()}
    failure: BaseException | None = None
    running = front | back
    try:
        while running & front:
            ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                error = task.exception()
                if error is None and task in back:
                    error = ProcessError(f"the background service {task.get_name()!r} ended")
                if error is not None:
                    log.error("service failed", service=task.get_name(), error=describe(error))
                    failure = failure or error
                    stop.set()
    finally:
        await cancel(front | back)
    if failure is not None:
        raise failure


async def close_within(seconds: float, what: str, close: Callable[[], Awaitable[None]]) -> None:
    """Close within a deadline, so that a server that hangs cannot keep the process from ending."""
    try:
        async with asyncio.timeout(seconds):
            await close()
    except TimeoutError:
        log.warning("closing took too long", what=what, seconds=seconds)


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
        _, pending = await asyncio.wait(pending, timeout=_CANCEL_SECONDS)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it
