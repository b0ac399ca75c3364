"""Embedded servers, ready to work: topics made, tables made, settings that lead to them."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import structlog
from pydantic import SecretStr

from catalog.migrate import migrate
from engine.cli.embedded.child import ServerStartError
from engine.cli.embedded.offsets import forget_offsets
from engine.cli.embedded.servers import EmbeddedServers
from engine.kafka.topics import Topics
from engine.process.settings import PREFIX, Settings

log = structlog.get_logger(__name__)

# This broker answers an empty fetch only when its wait is over, whatever arrives meanwhile.
_FETCH_WAIT = 0.02

__all__ = ["ServerStartError", "embedded_settings"]


@asynccontextmanager
async def embedded_settings(
    settings: Settings, write_env: Path | None = None
) -> AsyncIterator[Settings]:
    """`settings` with the addresses of servers that live as long as the context.

    `write_env` is a file to write those addresses to, for other commands' --env-file. A SQLite
    DATABASE_URL is kept as it is; otherwise the database lives as long as the servers. Raises
    ServerStartError.
    """
    if settings.delivery != "at_least_once":
        raise ServerStartError(
            f"{PREFIX}DELIVERY={settings.delivery} needs a real Kafka: the embedded broker shows "
            "consumers what a transaction has given up"
        )
    async with EmbeddedServers() as servers:
        database = settings.database_url.get_secret_value()
        chosen = "database_url" in settings.model_fields_set and _is_sqlite(database)
        addresses = {
            "kafka_bootstrap_servers": servers.kafka_bootstrap,
            "redis_url": servers.redis_url,
            "database_url": database if chosen else servers.database_url,
        }
        await servers.broker.create_topics(Topics.named(settings.topic_prefix).all())
        await migrate(addresses["database_url"])
        await forget_offsets(addresses["database_url"])
        lines = [f"{PREFIX}{name.upper()}={value}" for name, value in addresses.items()]
        log.info("embedded servers started", kafka=addresses["kafka_bootstrap_servers"])
        if write_env is not None:
            await asyncio.to_thread(_write, write_env, lines)
        yield settings.model_copy(
            update={
                "kafka_bootstrap_servers": addresses["kafka_bootstrap_servers"],
                "kafka_security_protocol": "PLAINTEXT",
                "kafka_fetch_wait": _FETCH_WAIT,
                "redis_url": SecretStr(addresses["redis_url"]),
                "database_url": SecretStr(addresses["database_url"]),
            }
        )


def _write(path: Path, lines: list[str]) -> None:
    """For its owner alone: it holds passwords."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123  # a descriptor
        os.fchmod(descriptor, 0o600)  # one that was there keeps its mode otherwise
        file.write("\n".join(lines) + "\n")


def _is_sqlite(url: str) -> bool:
    return urlsplit(url).scheme == "sqlite"
