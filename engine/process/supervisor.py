"""Several processes of one role under one parent: started together, stopped together.

A worker that ends by itself takes the others down: whoever started the parent (systemd,
Kubernetes) starts all of them again, from the committed offsets.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import structlog

from engine.process.logs import configure_logs
from engine.process.settings import PREFIX, Settings

log = structlog.get_logger(__name__)

_GRACE = 10.0  # seconds beyond the workers' own drain
# The second is that of a worker told to stop before it had begun.
_ENDED_WELL = (0, -int(signal.SIGTERM))


def supervise(role: str, workers: int, settings: Settings, env_file: Path | None) -> int:
    """Run `workers` processes until one ends or a signal comes; the exit status."""
    configure_logs(settings)
    processes: list[subprocess.Popen[bytes]] = []
    stopping = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True
        _terminate(processes)

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)
    for number in range(workers):
        port = settings.metrics_port and settings.metrics_port + number
        processes.append(_start(role, settings, env_file, port))
    if stopping:  # while they were being started
        _terminate(processes)
    log.info("workers started", role=role, workers=workers)
    first, status = os.wait()
    _note_end(processes, first, status)
    if not stopping:
        log.error("a worker ended by itself, stopping all", pid=first)
        _terminate(processes)
    statuses = [_reap(process, settings.drain_timeout * 2 + _GRACE) for process in processes]
    return 0 if stopping and all(status in _ENDED_WELL for status in statuses) else 1


def _start(
    role: str, settings: Settings, env_file: Path | None, port: int
) -> "subprocess.Popen[bytes]":
    file_option = ["--env-file", str(env_file)] if env_file else []
    command = [sys.executable, "-m", "engine.cli", *file_option, "run", "--role", role]
    environment = os.environ | {
        f"{PREFIX}METRICS_PORT": str(port),
        f"{PREFIX}LOG_FORMAT": settings.log_format,
    }
    # In a group of its own: Ctrl-C reaches the parent alone, whose SIGTERM is then the first signal
    # that the worker sees, and not the second, of which it would die undrained.
    return subprocess.Popen(command, env=environment, process_group=0)  # noqa: S603  # our own


def _terminate(processes: "list[subprocess.Popen[bytes]]") -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()


def _note_end(processes: "list[subprocess.Popen[bytes]]", pid: int, status: int) -> None:
    """Popen must learn of the end that os.wait() took from it."""
    for process in processes:
        if process.pid == pid:
            process.returncode = os.waitstatus_to_exitcode(status)


def _reap(process: "subprocess.Popen[bytes]", seconds: float) -> int:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        log.error("a worker did not end in time, killing it", pid=process.pid)  # noqa: TRY400
        process.kill()
        return process.wait()
