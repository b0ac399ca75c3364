"""Stores the last outcomes of each company's connector calls for its account holders.

Redis has a short list for each company. Calls do not wait for it: outcomes are collected, written a
few times a second, and dropped if they cannot be written.
"""

import asyncio
from collections import deque
from typing import Any

import msgspec
from redis.exceptions import RedisError

from catalog.redis_connection import RedisClient
from connectors.reports import BreakerSummary, CallHistory, PastCall
from engine.connector.redis_breakers import breaker_key
from engine.process.metrics import Metrics

KEPT = 50
_KEPT_SECONDS = 24 * 3600
_GATHER_SECONDS = 0.25
_MOST_COMPANIES = 2000  # whose calls wait to be written
_COMPANIES_A_WRITE = 100
_OPERATION = "past calls"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PastCall).decode


class CallHistoryWriter:
    """Collects outcomes and writes them. `run` must be running. `deadline` (s) bounds one write."""

    def __init__(
        self, *, redis: RedisClient, prefix: str, deadline: float, metrics: Metrics
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._deadline = deadline
        self._errors = metrics.redis_errors
        self._to_write: dict[int, deque[PastCall]] = {}
        self._arrived = asyncio.Event()

    def add(self, company_id: int, call: PastCall) -> None:
        """Write the call soon; only the newest KEPT calls of each company are written."""
        calls = self._to_write.get(company_id)
        if calls is None:
            if len(self._to_write) >= _MOST_COMPANIES:
                return
            calls = self._to_write[company_id] = deque(maxlen=KEPT)
        calls.append(call)
        self._arrived.set()

    async def run(self) -> None:
        """Write collected calls until cancelled, and then the rest."""
        try:
            while True:
                await self._arrived.wait()
                await asyncio.sleep(_GATHER_SECONDS)
                await self._write()
        finally:
            await self._write()

    async def _write(self) -> None:
        self._arrived.clear()
        gathered, self._to_write = self._to_write, {}
        companies = list(gathered.items())
        for start in range(0, len(companies), _COMPANIES_A_WRITE):
            pipeline: Any = self._redis.pipeline(transaction=False)
            for company_id, calls in companies[start : start + _COMPANIES_A_WRITE]:
                key = _key(self._prefix, company_id)
                pipeline.lpush(key, *map(_encode, calls))
                pipeline.ltrim(key, 0, KEPT - 1)
                pipeline.expire(key, _KEPT_SECONDS)
            try:
                async with asyncio.timeout(self._deadline):
                    await pipeline.execute()
            except (RedisError, OSError, TimeoutError) as error:
                # Dropped: no call waits for its history.
                self._errors.failed(error, _OPERATION)
                return
            self._errors.answered(_OPERATION)


async def read_call_history(
    redis: RedisClient, prefix: str, company_id: int, *, now: float, deadline: float
) -> CallHistory:
    """The last calls, and the breaker as of `now` (epoch s).

    Raises RedisError, OSError or TimeoutError.
    """
    pipeline: Any = redis.pipeline(transaction=False)
    pipeline.lrange(_key(prefix, company_id), 0, KEPT - 1)
    pipeline.hmget(breaker_key(prefix, company_id), "w", "u")
    async with asyncio.timeout(deadline):
        written, (outcomes, open_until) = await pipeline.execute()
    calls = [call for each in written if (call := _read(each)) is not None]
    return CallHistory(_breaker(outcomes, open_until, now), calls)


def _read(written: bytes) -> PastCall | None:
    """The call, or None for an entry of another version."""
    try:
        return _decode(written)
    except msgspec.DecodeError:
        return None


def _breaker(outcomes: bytes | None, open_until: bytes | None, now: float) -> BreakerSummary:
    """The breaker's state, which scripts/breaker.lua writes."""
    kept = outcomes or b""
    if open_until is None:
        return BreakerSummary("closed", len(kept), kept.count(b"1"), 0.0)
    wait = max(0.0, int(open_until) / 1000 - now)
    return BreakerSummary("open" if wait else "half_open", 0, 0, wait)


def _key(prefix: str, company_id: int) -> str:
    return f"{prefix}calls:{company_id}"
