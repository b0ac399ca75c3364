"""All embedded servers behind one door."""

import asyncio
import contextlib
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from engine.cli.embedded.broker import EmbeddedBroker
from engine.cli.embedded.redis_server import EmbeddedRedis


class EmbeddedServers:
    """Broker, Redis and SQLite, started on entry and stopped on exit.

    Inside the `async with`: `kafka_bootstrap` (host:port), `redis_url`, `database_url`
    (sqlite:///, an absolute path) and `broker`. Entering raises ServerStartError.
    """

    def __init__(self, *, directory: Path | None = None) -> None:
        """Keep the SQLite file in `directory` (made if absent, left in place), else nowhere."""
        self._directory = directory
        self._stack = contextlib.AsyncExitStack()
        self.kafka_bootstrap = ""
        self.redis_url = ""
        self.database_url = ""
        self.broker: EmbeddedBroker

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            self.database_url = f"sqlite:///{self._open_directory(stack) / 'proximity.sqlite3'}"
            self.broker = await asyncio.to_thread(EmbeddedBroker)
            stack.callback(self.broker.close)
            self.kafka_bootstrap = self.broker.bootstrap_servers
            redis = EmbeddedRedis()
            stack.push_async_callback(redis.stop)
            await redis.start()
            self.redis_url = redis.url
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def _open_directory(self, stack: contextlib.AsyncExitStack) -> Path:
        if self._directory is None:
            scratch = tempfile.TemporaryDirectory(prefix="proximity-")
            return Path(stack.enter_context(scratch)).resolve()
        self._directory.mkdir(parents=True, exist_ok=True)
        return self._directory.resolve()
