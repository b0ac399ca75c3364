"""Errors sorted once: what may pass by itself is tried again, everything else stops the process.

(The third sort, records that can never succeed, become dead letters where they are decoded.
Errors of SQL are sorted in catalog.failures, which the management interface uses too.)
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from aiokafka.errors import KafkaError, KafkaTimeoutError
from redis import exceptions as redis_errors

from catalog.failures import database_may_recover as database_may_recover
from catalog.failures import took_too_long as took_too_long

if TYPE_CHECKING:
    from engine.process.server_errors import ServerErrors

FIRST_BACKOFF = 0.05
LAST_BACKOFF = 2.0

Result = TypeVar("Result")

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


def redis_may_recover(error: Exception) -> bool:
    """Whether Redis may answer later. A refusal of the command itself (a wrong type, a missing
    permission, a script's fault) will not pass."""
    if isinstance(error, redis_errors.ResponseError):
        text = str(error)
        return isinstance(error, _REFUSALS_THAT_PASS) or any(c in text for c in _CODES_THAT_PASS)
    return isinstance(error, redis_errors.RedisError | OSError | TimeoutError)


async def until_redis_answers(
    call: Callable[[], Awaitable[Result]], errors: "ServerErrors", what: str
) -> Result:
    """The result of `call`, tried again with backoff for as long as Redis does not answer.

    The partition waits meanwhile: backpressure, not loss. `call` must be idempotent and carry
    its own deadline.
    """
    backoff = FIRST_BACKOFF
    while True:
        try:
            result = await call()
        except Exception as error:  # sorted here: passes again, or goes up and stops the process
            if not redis_may_recover(error):
                raise
            errors.failed(error, what)
        else:
            errors.answered(what)
            return result
        await asyncio.sleep(backoff)
        backoff = min(backoff * 2, LAST_BACKOFF)
