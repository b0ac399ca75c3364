"""The only retry of calls to servers (docs/decisions/0065)."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from engine.process.server_errors import ServerErrors

Result = TypeVar("Result")

_FIRST_SECONDS = 0.05
_LAST_SECONDS = 2.0


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
