"""Turns the failure of a command into its exit status and one line for the user."""

from collections.abc import Callable, Collection

import typer
from aiokafka.errors import KafkaConnectionError, KafkaError, NodeNotReadyError
from asyncpg import InterfaceError, PostgresError
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError
from typer.exceptions import TyperException

from catalog.errors import AccountError, DatabaseUrlError, RedisUrlError, SecretKeyError
from connectors.errors import CertificatesError, NothingToTryError
from engine.cli.command import (
    FAILED,
    INTERRUPTED,
    USAGE,
    CommandError,
    CommandInterruptedError,
    Invocation,
)
from engine.kafka.dead_letters import TooManyDeadLettersError
from engine.kafka.producer import MessageTooLargeError
from engine.process.errors import (
    PortInUseError,
    SchemaError,
    SchemaRegistryError,
    ServiceDiedError,
    SettingsError,
)
from engine.process.settings import PREFIX, Settings
from engine.process.settings_sources import shown

# Errors whose message is the line.
_FAILURES = (
    CommandError,
    AccountError,
    CertificatesError,
    NothingToTryError,
    PortInUseError,
    SchemaError,
    SchemaRegistryError,
    SecretKeyError,
    ServiceDiedError,
    TooManyDeadLettersError,
)


def failure(
    error: BaseException, invocation: Invocation, complaints: Collection[str]
) -> tuple[int, str]:
    """The exit status and the line of an error. Raises the error if it is none of a command's."""
    if isinstance(error, TyperException):
        return error.exit_code, error.format_message()
    if isinstance(error, typer.Abort | KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, SettingsError):
        return USAGE, str(error)
    if isinstance(error, RedisUrlError | DatabaseUrlError):
        return USAGE, line_of(error, invocation.settings, complaints)
    status = INTERRUPTED if isinstance(error, CommandInterruptedError) else FAILED
    notes = getattr(error, "__notes__", ())
    return status, "; ".join((line_of(error, invocation.settings, complaints), *notes))


def line_of(
    error: BaseException, settings: Callable[[], Settings], complaints: Collection[str]
) -> str:
    """The line of an error of a server or of the work. Raises any other error."""
    if isinstance(error, _FAILURES):
        return str(error)
    if isinstance(error, RedisUrlError):
        return f"{PREFIX}REDIS_URL: {error}"
    if isinstance(error, DatabaseUrlError):
        return f"{PREFIX}DATABASE_URL: {error}"
    if isinstance(error, MessageTooLargeError):
        return f"the broker refuses {error}"
    if isinstance(error, KafkaError) or (isinstance(error, TimeoutError) and complaints):
        where = settings().kafka_bootstrap_servers
        return f"Kafka at {where} does not serve: {_kafka_reason(error, complaints)}"
    if isinstance(error, RedisError):
        where = shown(settings().redis_url)
        return f"Redis does not serve: {reason_of(error)} ({PREFIX}REDIS_URL is {where})"
    if isinstance(error, TimeoutError):
        return "a server did not answer in time: `proximity check` tries each of them"
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot use {error.filename}: {error.strerror}"
    if isinstance(error, SQLAlchemyError | PostgresError | InterfaceError | OSError):
        where = shown(settings().database_url)
        return f"the database refused: {reason_of(error)} ({PREFIX}DATABASE_URL is {where})"
    raise error


def reason_of(error: BaseException) -> str:
    """The first line of the driver's message, or the error's name."""
    return str(getattr(error, "orig", None) or error).partition("\n")[0] or type(error).__name__


def _kafka_reason(error: BaseException, complaints: Collection[str]) -> str:
    # Where the error is vague, the last complaint says more.
    if not isinstance(error, KafkaConnectionError | NodeNotReadyError | TimeoutError):
        return reason_of(error)
    said = " ".join((*complaints, reason_of(error))[0].split())
    return f"{said}: check {PREFIX}KAFKA_BOOTSTRAP_SERVERS, _SECURITY_PROTOCOL and the login"
