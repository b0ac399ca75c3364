"""One connection to one broker, for questions that aiokafka's clients do not ask."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka.conn import create_conn
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from engine.kafka.client_options import single_connection_options
from engine.process.settings import Settings
from engine.process.settings_checks import bootstrap_addresses

_SECONDS = 5.0


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


async def has_let_in(connection: Any) -> bool:
    """Whether a login by token was one.

    A broker that refuses the token says so in a way that aiokafka takes for a success (RFC 7628).
    At the next request it tells of no brokers and hangs up.
    """
    try:
        answer = await connection.send(MetadataRequest([]))
    except (KafkaError, OSError):
        return False
    return bool(answer.brokers)


async def _connect(settings: Settings, host: str, port: int) -> Any:
    options = single_connection_options(settings)
    options["request_timeout_ms"] = int(_SECONDS * 1000)
    return await create_conn(host, port, **options)
