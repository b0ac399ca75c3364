"""Runs several processes (workers) of one role under one parent, with one metrics port.

If a worker ends by itself, the parent stops the others and ends; systemd or Kubernetes then starts
the parent again, and all continue from the committed offsets. The parent serves METRICS_PORT for
all (workers_page.py); each worker serves a port on loopback that the parent has opened.
"""

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from pathlib import Path

import structlog

from engine.process.cancelling import cancel
from engine.process.http_limits import HttpLimits
from engine.process.http_server import BoundedServer, listen
from engine.process.logs import configure_logs
from engine.process.settings import PREFIX, Settings
from engine.process.workers_page import WorkersPage

log = structlog.get_logger(__name__)

_GRACE = 10.0  # seconds beyond the workers' own drain
_HEAD_SECONDS = 5.0
_PORT_SETTING = f"{PREFIX}METRICS_PORT"
# The second is the status of a worker that was stopped before it had started.
_ENDED_WELL = (0, -int(signal.SIGTERM))


async def supervise(role: str, workers: int, settings: Settings, env_file: Path | None) -> int:
    """Run `workers` processes until one ends or a signal arrives. Returns the exit status.

    Raises PortInUseError.
    """
    configure_logs(settings)
    with listen(settings.metrics_host, settings.metrics_port, setting=_PORT_SETTING) as port:
        listeners = [listen("127.0.0.1", 0, setting=_PORT_SETTING) for _ in range(workers)]
        page = WorkersPage([listener.getsockname()[1] for listener in listeners])
        server = BoundedServer(page, HttpLimits(head_seconds=_HEAD_SECONDS), interface="asgi3")
        serving = asyncio.create_task(server.serve(sockets=[port]), name="metrics port")
        try:
            log.info("starting workers", role=role, workers=workers, metrics=_address(port))
            return await _run(role, settings, env_file, listeners, serving)
        finally:
            await cancel([serving])


async def _run(
    role: str,
    settings: Settings,
    env_file: Path | None,
    listeners: Sequence[socket.socket],
    serving: asyncio.Task[None],
) -> int:
    stop = asyncio.Event()
    processes: list[Process] = []

    def on_signal() -> None:
        stop.set()
        _terminate(processes)

    loop = asyncio.get_running_loop()
    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, on_signal)
    for listener in listeners:
        with listener:
            process = await _start(role, settings, env_file, listener)
        processes.append(process)
        if stop.is_set():  # while they are being started
            process.terminate()
    log.info("workers started", pids=[process.pid for process in processes])
    ends = {asyncio.create_task(process.wait()) for process in processes}
    await asyncio.wait({*ends, serving}, return_when=asyncio.FIRST_COMPLETED)
    if not stop.is_set():
        ended = [process.pid for process in processes if process.returncode is not None]
        log.error("a worker ended by itself, stopping all", pid=ended[0] if ended else None)
        _terminate(processes)
    statuses = await _reap(processes, settings.drain_timeout * 2 + _GRACE)
    await asyncio.gather(*ends)
    return 0 if stop.is_set() and all(status in _ENDED_WELL for status in statuses) else 1


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"{host}:{port}"


async def _start(
    role: str, settings: Settings, env_file: Path | None, listener: socket.socket
) -> Process:
    file_option = ["--env-file", str(env_file)] if env_file else []
    link = ["--worker-of", f"{os.getpid()}:{listener.fileno()}"]
    command = [sys.executable, "-m", "engine.cli", *file_option, "run", "--role", role, *link]
    # In a process group of its own, so that Ctrl-C reaches only the parent. The parent's SIGTERM is
    # then the first signal of the worker; a second signal would end it without a drain.
    return await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | {f"{PREFIX}LOG_FORMAT": settings.log_format},
        pass_fds=[listener.fileno()],
        process_group=0,
    )


def _terminate(processes: Sequence[Process]) -> None:
    for process in processes:
        if process.returncode is None:
            process.terminate()


async def _reap(processes: Sequence[Process], seconds: float) -> list[int]:
    """The exit statuses. Kills processes that have not ended in time."""
    deadline = asyncio.get_running_loop().time() + seconds
    statuses = []
    for process in processes:
        try:
            async with asyncio.timeout_at(deadline):
                statuses.append(await process.wait())
        except TimeoutError:
            log.error("a worker did not end in time, killing it", pid=process.pid)  # noqa: TRY400
            process.kill()
            statuses.append(await process.wait())
    return statuses
