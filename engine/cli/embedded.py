"""Starts embedded servers with topics and tables, and gives settings with their addresses."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import structlog
from pydantic import SecretStr

from catalog.migrate import migrate
from engine.cli.local_servers import ServerStartError, embedded_servers
from engine.kafka.topics import Topics
from engine.process.settings import PREFIX, Settings

log = structlog.get_logger(__name__)


class _EmbeddedSettings(Settings):
    """This broker answers an empty fetch only at the end of its wait, even if records arrive."""

    fetch_wait: ClassVar[float] = 0.02


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
            "consumers the messages of aborted transactions"
        )
    async with embedded_servers() as servers:
        database = settings.database_url.get_secret_value()
        is_chosen = "database_url" in settings.model_fields_set
        if not (is_chosen and urlsplit(database).scheme == "sqlite"):
            database = servers.database_url
        await servers.broker.create_topics(Topics.named(settings.topic_prefix).all())
        await migrate(database)
        log.info("embedded servers started", kafka=servers.kafka_bootstrap)
        if write_env is not None:
            addresses = {
                "KAFKA_BOOTSTRAP_SERVERS": servers.kafka_bootstrap,
                "REDIS_URL": servers.redis_url,
                "DATABASE_URL": database,
            }
            await asyncio.to_thread(_write, write_env, addresses)
        update = {
            "kafka_bootstrap_servers": servers.kafka_bootstrap,
            "kafka_security_protocol": "PLAINTEXT",
            "redis_url": SecretStr(servers.redis_url),
            "database_url": SecretStr(database),
        }
        yield _EmbeddedSettings.model_construct(
            settings.model_fields_set, **dict(settings) | update
        )


def _write(path: Path, addresses: dict[str, str]) -> None:
    """Write the file so that only its owner can read it, because it holds passwords."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123  # a descriptor
        os.fchmod(descriptor, 0o600)  # an existing file would keep its mode
        file.writelines(f"{PREFIX}{name}={value}\n" for name, value in addresses.items())
