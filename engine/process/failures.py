"""Sorts errors: a temporary error is retried, every other error stops the process.

(Invalid records become dead letters where they are decoded. catalog.sql_failures sorts errors of
SQL, for the management interface too.)
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
# Refusals for which redis-py has no class, or that Redis 6.2 wraps in a script's error: cannot
# write to disk, too few replicas, busy with a script, out of memory, has become a replica. They end
# by themselves, or when a person repairs Redis.
_CODES_THAT_PASS = ("MISCONF ", "NOREPLICAS ", "BUSY ", "-OOM ", "-READONLY ")


def describe(error: BaseException) -> str:
    """An error on one line for the log: its type and its message."""
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def kafka_may_recover(error: Exception) -> bool:
    """Whether a retry may succeed.

    Missing rights, a fenced producer and a message that is too large are permanent errors.
    """
    if isinstance(error, KafkaError):
        return bool(error.retriable) or isinstance(error, KafkaTimeoutError)
    return isinstance(error, OSError | TimeoutError)


def registry_may_recover(error: Exception) -> bool:
    """Whether a schema registry may answer later.

    A person can correct any refusal (a missing permission, an error of the registry) while the role
    retries.
    """
    return isinstance(error, OSError | TimeoutError | SchemaRegistryError)


def redis_may_recover(error: Exception) -> bool:
    """Whether a retry may succeed.

    A refusal of the command itself (a wrong type, a missing permission, a script's fault) is
    permanent.
    """
    if isinstance(error, redis_errors.ResponseError):
        text = str(error)
        return isinstance(error, _REFUSALS_THAT_PASS) or any(c in text for c in _CODES_THAT_PASS)
    return isinstance(error, redis_errors.RedisError | OSError | TimeoutError)
