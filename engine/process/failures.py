"""Errors: what may be retried, the only retry, and the log lines for outages of a server.

A temporary error is retried, every other error stops the process. (Invalid records become dead
letters where they are decoded. catalog.database sorts errors of SQL, for the management
interface too.)
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import TypeVar

import structlog
from aiokafka.errors import KafkaError, KafkaTimeoutError
from prometheus_client import Counter
from redis import exceptions as redis_errors

from catalog.database import database_may_recover as database_may_recover
from catalog.database import took_too_long as took_too_long
from engine.process.errors import SchemaRegistryError

log = structlog.get_logger(__name__)

Result = TypeVar("Result")

_FIRST_SECONDS = 0.05
_LAST_SECONDS = 2.0
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
    """Whether a schema registry may answer later; a person can correct any of its refusals."""
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


@dataclass(eq=False)
class ServerErrors:
    """The failed calls to one server: a counter, a log line for an outage and one for its end.

    `operation` names a kind of call; each has its own outages, because some may fail while others
    succeed (a full Redis answers a ping). `may_recover` is the function of failures.py for this
    server. Without `counter` nothing is counted.
    """

    server: str
    counter: Counter | None = None
    _: KW_ONLY
    may_recover: Callable[[Exception], bool]
    clock: Callable[[], float] = time.monotonic
    _since: dict[str, float] = field(default_factory=dict)

    def inc(self) -> None:
        """Count a failed call without a log line."""
        if self.counter is not None:
            self.counter.inc()

    def failed(self, error: BaseException, operation: str) -> None:
        """Count a failed call that will be retried, and log the beginning of an outage."""
        self.inc()
        if operation not in self._since:
            self._since[operation] = self.clock()
            what = {"server": self.server, "what": operation, "error": describe(error)}
            log.error("server failed, trying again", **what)

    def answered(self, operation: str) -> None:
        """A call succeeded. Costs nothing unless a call failed before."""
        since = self._since.pop(operation, None)
        if since is not None:
            seconds = round(self.clock() - since, 1)
            log.warning("server answers again", server=self.server, what=operation, seconds=seconds)


class Backoff:
    """Pauses between tries, each twice as long as the one before, from `first` to `last` seconds.

    Up to half of each pause is left out at random, so that the processes of a cluster do not return
    to a server at the same time. `sleep` is the clock.
    """

    def __init__(
        self,
        first: float = _FIRST_SECONDS,
        last: float = _LAST_SECONDS,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._first = self._next = first
        self._last = last
        self._sleep = sleep

    async def pause(self) -> None:
        """Sleep for the next pause."""
        seconds, self._next = self._next, min(self._next * 2, self._last)
        await self._sleep(seconds * random.uniform(0.5, 1.0))  # noqa: S311  # no secret

    def reset(self) -> None:
        """A try succeeded: the next pause is the first again."""
        self._next = self._first


async def retry(
    call: Callable[[], Awaitable[Result]],
    errors: ServerErrors,
    operation: str,
    *,
    may_recover: Callable[[Exception], bool] | None = None,
    deadline: float | None = None,
    backoff: Backoff | None = None,
) -> Result:
    """The result of `call`, which is retried after temporary errors without an end.

    The caller's partition waits meanwhile, which is backpressure and loses nothing. So `call` must
    be idempotent, and each try needs a bound: `deadline` (seconds), or the call's own. `errors`
    sorts the errors of its server (unless `may_recover` does), and logs once that the server is
    down and once that it is back; `operation` names the kind of call. Raises permanent errors. A
    cancellation takes effect at once.
    """
    backoff = backoff or Backoff()
    may_recover = may_recover or errors.may_recover
    while True:
        try:
            async with asyncio.timeout(deadline):
                result = await call()
        except Exception as error:  # temporary errors are retried, others are raised
            if not may_recover(error):
                raise
            errors.failed(error, operation)
        else:
            errors.answered(operation)
            return result
        await backoff.pause()
