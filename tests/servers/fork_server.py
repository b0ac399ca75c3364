"""Starts `proximity` again and again without its imports, which take a second of each start.

`python -m tests.servers.fork_server FD` imports the product once. For each request on the socket FD
it forks a process that runs `engine.cli` as `python -m` does: own session, streams, environment and
folder. A keeper, forked too, waits for the process and writes its pid and its status to a pipe.
"""

import functools
import gc
import importlib
import json
import os
import runpy
import socket
import struct
import sys
import time
from typing import Any, NoReturn

STATUS = struct.Struct("i")
_LARGEST_REQUEST = 1 << 18
_IMPORTED = (
    "api.console.routes",
    "catalog.migrate",
    "engine.process.lifecycle",
    "engine.wiring.api",
    "engine.wiring.run",
    "rich.console",
)


def main() -> None:
    """Serve requests until the other side closes the socket."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    # As engine.cli does while it imports.
    gc.disable()
    importlib.import_module("engine.cli.application").command_group().load()
    for name in _IMPORTED:
        importlib.import_module(name)
    while True:
        message, files, _, _ = socket.recv_fds(connection, _LARGEST_REQUEST, 4)
        if not message:
            return
        if os.fork() == 0:
            connection.close()
            _fork_and_keep(json.loads(message), files)
            return
        for file in files:
            os.close(file)
        _reap_keepers()


def _reap_keepers() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _fork_and_keep(request: dict[str, Any], files: list[int]) -> None:
    """Return when the product has returned, in its process; never in the keeper."""
    *streams, status = files
    pid = os.fork()
    if pid:
        for file in streams:
            os.close(file)
        _keep(pid, status)
    os.close(status)
    for number, file in enumerate(streams):
        os.dup2(file, number)
        os.close(file)
    _run_product(request)


def _keep(pid: int, status: int) -> NoReturn:
    try:
        os.write(status, STATUS.pack(pid))
        os.write(status, STATUS.pack(os.waitpid(pid, 0)[1]))
    finally:
        os._exit(0)


def _run_product(request: dict[str, Any]) -> None:
    os.setsid()
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    _open_streams()
    sys.argv[1:] = request["arguments"]
    runpy.run_module("engine.cli", run_name="__main__", alter_sys=True)


def _open_streams() -> None:
    """The interpreter's own were opened at its start."""
    utf_8 = functools.partial(open, encoding="utf-8", closefd=False)
    sys.stdin = utf_8(0, errors=sys.stdin.errors)
    sys.stdout = utf_8(1, "w", errors=sys.stdout.errors)
    sys.stderr = utf_8(2, "w", 1, errors=sys.stderr.errors)
    if os.environ.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(write_through=True)


if __name__ == "__main__":
    main()
