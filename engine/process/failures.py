"""Errors sorted once: what may pass by itself is tried again, everything else stops the process.

(The third sort, records that can never succeed, become dead letters where they are decoded.
Errors of SQL are sorted in catalog.sql_failures, which the management interface uses too.)
"""

from aiokafka.errors import KafkaError, KafkaTimeoutError
from redis import exceptions as redis_errors

from catalog.sql_failures import database_may_recover as database_may_recover
from catalog.sql_failures import took_too_long as took_too_long
from engine.process.errors import SchemaRegistryError

_REFUSALS_THAT_PASS = (
    redis_errors.OutOfMemoryError,
    redis_errors.ReadOnlyError,
    redis_errors.ClusterDownError,
    redis_errors.MasterDownError,
    redis_errors.TryAgainError,
    redis_errors.NoScriptError,
)
# Refusals that redis-py has no class for, or that Redis 6.2 wraps in a script's error: cannot write
# to disk, too few replicas, in the middle of a script, out of memory, a replica by now. A person,
# or time, mends them while we wait.
_CODES_THAT_PASS = ("MISCONF ", "NOREPLICAS ", "BUSY ", "-OOM ", "-READONLY ")


def describe(error: BaseException) -> str:
    """An error on one line, for the log: its kind and what it says."""
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def kafka_may_recover(error: Exception) -> bool:
    """Whether the brokers may answer later. An authorisation, a fenced producer or a message
    that is too large will not pass."""
    if isinstance(error, KafkaError):
        return bool(error.retriable) or isinstance(error, KafkaTimeoutError)
    return isinstance(error, OSError | TimeoutError)


def registry_may_recover(error: Exception) -> bool:
    """Whether a schema registry may answer later. Whatever it answers instead of a schema (no
    permission, its own fault) a person mends while we wait."""
    return isinstance(error, OSError | TimeoutError | SchemaRegistryError)


def redis_may_recover(error: Exception) -> bool:
    """Whether Redis may answer later. A refusal of the command itself (a wrong type, a missing
    permission, a script's fault) will not pass."""
    if isinstance(error, redis_errors.ResponseError):
        text = str(error)
        return isinstance(error, _REFUSALS_THAT_PASS) or any(c in text for c in _CODES_THAT_PASS)
    return isinstance(error, redis_errors.RedisError | OSError | TimeoutError)
