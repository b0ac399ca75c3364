"""What account holders see of their calls, in Redis: the last ones, and the breaker."""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any

import msgspec
from redis.exceptions import RedisError

from catalog.redis_connection import RedisClient
from connectors.model import BreakerSummary, CallHistory, PastCall
from connectors.schedule import Breaker
from engine.process.metrics import Metrics

KEPT = 50  # calls of a company in its history
_KEPT_SECONDS = 24 * 3600
_GATHER_SECONDS = 0.25
_BREAKER_SECONDS = 600
_TAGS = 16  # slots over which a cluster spreads breakers

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PastCall).decode


class CallHistoryWriter:
    """Writes each company's last calls and its breaker, a few times a second.

    No call waits for it, and what cannot be written is dropped. `run` must be running. `deadline`
    (s) bounds one write. Of the breakers of several processes the one that was used last is kept.
    """

    def __init__(
        self, *, redis: RedisClient, prefix: str, deadline: float, metrics: Metrics
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._deadline = deadline
        self._errors = metrics.redis_errors
        self._calls: dict[int, deque[PastCall]] = {}
        self._breakers: dict[int, Breaker] = {}

    def add(self, company_id: int, call: PastCall) -> None:
        """Write the call soon; only the newest KEPT calls of each company are written."""
        self._calls.setdefault(company_id, deque(maxlen=KEPT)).append(call)

    def add_breaker(self, company_id: int, breaker: Breaker) -> None:
        """Write the breaker soon, as it is then."""
        self._breakers[company_id] = breaker

    async def run(self) -> None:
        """Write what was added until cancelled, and then the rest."""
        try:
            while True:
                await asyncio.sleep(_GATHER_SECONDS)
                await self.write()
        finally:
            await self.write()

    async def write(self) -> None:
        """Write what was added."""
        calls, self._calls = self._calls, {}
        breakers, self._breakers = self._breakers, {}
        if not calls and not breakers:
            return
        pipeline: Any = self._redis.pipeline(transaction=False)
        for company_id, made in calls.items():
            key = _history_key(self._prefix, company_id)
            pipeline.lpush(key, *map(_encode, made))
            pipeline.ltrim(key, 0, KEPT - 1)
            pipeline.expire(key, _KEPT_SECONDS)
        for company_id, breaker in breakers.items():
            key = _breaker_key(self._prefix, company_id)
            pipeline.hset(key, mapping=_written(breaker))
            pipeline.expire(key, _BREAKER_SECONDS)
        try:
            async with asyncio.timeout(self._deadline):
                await pipeline.execute()
        except (RedisError, OSError, TimeoutError) as error:
            self._errors.failed(error, "past calls")
        else:
            self._errors.answered("past calls")


def _breaker_key(prefix: str, company_id: int) -> str:
    return f"{prefix}breaker:{{{company_id % _TAGS}}}:{company_id}"


def _written(breaker: Breaker) -> dict[str, str]:
    """The last outcomes, 1 for a failure, and until when it is open (epoch ms; empty: closed)."""
    until = breaker.open_until
    return {
        "w": "".join("1" if failed else "0" for failed in breaker.outcomes),
        "u": "" if until is None else str(round(until * 1000)),
    }


async def read_call_history(
    redis: RedisClient, prefix: str, company_id: int, *, now: float, deadline: float
) -> CallHistory:
    """The last calls, and the breaker as of `now` (epoch s).

    Raises RedisError, OSError or TimeoutError.
    """
    pipeline: Any = redis.pipeline(transaction=False)
    pipeline.lrange(_history_key(prefix, company_id), 0, KEPT - 1)
    pipeline.hmget(_breaker_key(prefix, company_id), "w", "u")
    async with asyncio.timeout(deadline):
        written, (outcomes, open_until) = await pipeline.execute()
    calls = []
    for each in written:
        with suppress(msgspec.DecodeError):  # another version of the engine wrote it
            calls.append(_decode(each))
    return CallHistory(_summary(outcomes or b"", open_until, now), calls)


def _summary(outcomes: bytes, open_until: bytes | None, now: float) -> BreakerSummary:
    """The breaker's state, as `_written` wrote it."""
    if not open_until:
        return BreakerSummary("closed", len(outcomes), outcomes.count(b"1"), 0.0)
    wait = max(0.0, int(open_until) / 1000 - now)
    return BreakerSummary("open" if wait else "half_open", 0, 0, wait)


def _history_key(prefix: str, company_id: int) -> str:
    return f"{prefix}calls:{company_id}"
