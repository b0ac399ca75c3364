"""One connection to one broker, for requests that aiokafka's clients do not make."""

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
    """A connection to the first bootstrap address that answers.

    Raises KafkaError, OSError, TimeoutError. Connecting, and each answer, take 5 s at most.
    """
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
    """A connection to the broker at this address. Raises as `any_broker` does."""
    connection = await _connect(settings, host, port)
    try:
        yield connection
    finally:
        connection.close()


async def has_accepted_login(connection: Any) -> bool:
    """Whether a login by token succeeded.

    aiokafka takes a broker's refusal of a token for a success (RFC 7628). At the next request such
    a broker names no brokers and closes the connection.
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
