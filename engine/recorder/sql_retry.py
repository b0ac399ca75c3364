"""Retries calls to SQL until it answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from engine.process.failures import database_may_recover, took_too_long
from engine.process.retry import Backoff
from engine.process.server_errors import ServerErrors
from engine.recorder.errors import TransactionTooSlowError, WriteAgainError

log = structlog.get_logger(__name__)

_LONGEST_PAUSE = 5.0
_SLOW_TRIES = 3  # after these the batch may be too large for the deadline of a statement

Result = TypeVar("Result")


class SqlRetry:
    """Retries calls to SQL; each try has a `deadline` (seconds)."""

    def __init__(self, errors: ServerErrors, deadline: float) -> None:
        self._errors = errors
        self._deadline = deadline

    async def until_answered(
        self, call: Callable[[], Awaitable[Result]], *, may_be_split: bool = False
    ) -> Result:
        """The result of `call`, with retries and backoff while SQL is down or reports a conflict.

        The partition waits meanwhile, which is backpressure and loses nothing. If a call that
        `may_be_split` times out several times, TransactionTooSlowError is raised.
        """
        backoff, slow = Backoff(last=_LONGEST_PAUSE), 0
        while True:
            try:
                async with asyncio.timeout(self._deadline):
                    result = await call()
            except WriteAgainError as error:
                self._errors.inc()
                log.warning("batch_retried", reason=error.reason)
            except Exception as error:  # permanent errors are raised
                if not database_may_recover(error):
                    raise
                self._errors.failed(error, "recording")
                slow += took_too_long(error)
                if may_be_split and slow >= _SLOW_TRIES:
                    raise TransactionTooSlowError from error
            else:
                self._errors.answered("recording")
                return result
            await backoff.pause()
