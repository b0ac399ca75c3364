"""One connection to one broker, for questions that aiokafka's clients do not ask."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.conn import create_conn

from engine.kafka.connection import single_connection_options
from engine.process.settings import Settings
from engine.process.settings_checks import bootstrap_addresses

_SECONDS = 5.0
_NOT_TOLD = -(2**31)


class Rights:
    """What the login may do; None where the cluster does not say."""

    def __init__(self, bits: int) -> None:
        self._bits = bits

    def has(self, operation: int) -> bool | None:
        """Whether this operation (Kafka's number) is among them."""
        return None if self._bits == _NOT_TOLD else bool(self._bits >> operation & 1)


@asynccontextmanager
async def any_broker(settings: Settings) -> AsyncIterator[Any]:
    """Of the bootstrap addresses the first that answers. Raises KafkaError, OSError, TimeoutError;
    connecting, and each answer, take 5 s at most."""
    failure: Exception | None = None
    for host, port in bootstrap_addresses(settings.kafka_bootstrap_servers):
        try:
            connection = await _connect(settings, host, port)
        except Exception as error:  # raised below, unless another address answers
            failure = error
            continue
        try:
            yield connection
        finally:
            connection.close()
        return
    raise failure or OSError("no address")


@asynccontextmanager
async def broker_at(settings: Settings, host: str, port: int) -> AsyncIterator[Any]:
    """The one at this address. Raises as `any_broker` does."""
    connection = await _connect(settings, host, port)
    try:
        yield connection
    finally:
        connection.close()


async def _connect(settings: Settings, host: str, port: int) -> Any:
    options = single_connection_options(settings)
    options["request_timeout_ms"] = int(_SECONDS * 1000)
    return await create_conn(host, port, **options)
