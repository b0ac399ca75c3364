"""What the role keeps in Redis: breakers, and the history for account holders."""

import asyncio
from collections import deque
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import msgspec
from redis.asyncio import RedisCluster
from redis.exceptions import RedisError

from catalog.redis_connection import RedisClient
from connectors.breaker import FORGET_SECONDS, BreakerPolicy, BreakerReport, BreakerState
from connectors.model import BreakerSummary, CallHistory, PastCall
from engine.process.metrics import Metrics

KEPT = 50  # calls of a company in its history
_KEPT_SECONDS = 24 * 3600
_GATHER_SECONDS = 0.25
_MOST_COMPANIES = 2000  # whose calls wait to be written
_COMPANIES_A_WRITE = 100
_TAGS = 16  # slots over which a cluster spreads breakers

_SCRIPT = files("engine.connector").joinpath("scripts/breaker.lua").read_text(encoding="utf-8")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PastCall).decode


class RedisBreakers:
    """A BreakerStore in Redis: one script call, or one for each slot of a cluster.

    `deadline` in seconds. Raises RedisError or TimeoutError.
    """

    def __init__(
        self, *, redis: RedisClient, prefix: str, policy: BreakerPolicy, deadline: float
    ) -> None:
        self._prefix = prefix
        self._policy = policy
        self._deadline = deadline
        self._clustered = isinstance(redis, RedisCluster)
        self._script = redis.register_script(_SCRIPT)

    async def exchange(
        self, reports: Sequence[BreakerReport], *, prober: str, now: float
    ) -> list[BreakerState]:
        """As BreakerStore says."""
        by_tag: dict[int, list[int]] = {}
        for position, report in enumerate(reports):
            tag = report.company_id % _TAGS if self._clustered else 0
            by_tag.setdefault(tag, []).append(position)
        states: dict[int, BreakerState] = {}
        async with asyncio.timeout(self._deadline):
            for positions in by_tag.values():
                answers = await self._call([reports[i] for i in positions], prober, now)
                states.update(zip(positions, answers, strict=True))
        return [states[position] for position in range(len(reports))]

    async def _call(
        self, reports: Sequence[BreakerReport], prober: str, now: float
    ) -> list[BreakerState]:
        policy = self._policy
        replies: Any = await self._script(
            keys=[breaker_key(self._prefix, report.company_id) for report in reports],
            args=[
                round(now * 1000),
                policy.window,
                policy.failures,
                round(policy.pause * 1000),
                round(policy.lease * 1000),
                round(FORGET_SECONDS * 1000),
                prober,
                *(part for report in reports for part in _arguments(report)),
            ],
        )
        threes = zip(replies[::3], replies[1::3], replies[2::3], strict=True)
        return [
            BreakerState(is_open=bool(is_open), is_prober=bool(is_prober), wait=wait / 1000)
            for is_open, is_prober, wait in threes
        ]


def breaker_key(prefix: str, company_id: int) -> str:
    """The key of the hash that scripts/breaker.lua reads and writes."""
    return f"{prefix}breaker:{{{company_id % _TAGS}}}:{company_id}"


def _arguments(report: BreakerReport) -> tuple[str, str]:
    outcomes = "".join("1" if failed else "0" for failed in report.outcomes)
    return report.purpose.value, outcomes


class CallHistoryWriter:
    """Writes the last outcomes of each company's calls, a few times a second.

    No call waits for it, and what cannot be written is dropped. `run` must be running. `deadline`
    (s) bounds one write.
    """

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
                key = _history_key(self._prefix, company_id)
                pipeline.lpush(key, *map(_encode, calls))
                pipeline.ltrim(key, 0, KEPT - 1)
                pipeline.expire(key, _KEPT_SECONDS)
            try:
                async with asyncio.timeout(self._deadline):
                    await pipeline.execute()
            except (RedisError, OSError, TimeoutError) as error:
                self._errors.failed(error, "past calls")
                return
            self._errors.answered("past calls")


async def read_call_history(
    redis: RedisClient, prefix: str, company_id: int, *, now: float, deadline: float
) -> CallHistory:
    """The last calls, and the breaker as of `now` (epoch s).

    Raises RedisError, OSError or TimeoutError.
    """
    pipeline: Any = redis.pipeline(transaction=False)
    pipeline.lrange(_history_key(prefix, company_id), 0, KEPT - 1)
    pipeline.hmget(breaker_key(prefix, company_id), "w", "u")
    async with asyncio.timeout(deadline):
        written, (outcomes, open_until) = await pipeline.execute()
    calls = [call for each in written if (call := _read(each)) is not None]
    return CallHistory(_summary(outcomes or b"", open_until, now), calls)


def _read(written: bytes) -> PastCall | None:
    """The call, or None for an entry of another version."""
    try:
        return _decode(written)
    except msgspec.DecodeError:
        return None


def _summary(outcomes: bytes, open_until: bytes | None, now: float) -> BreakerSummary:
    """The breaker's state, which scripts/breaker.lua writes."""
    if open_until is None:
        return BreakerSummary("closed", len(outcomes), outcomes.count(b"1"), 0.0)
    wait = max(0.0, int(open_until) / 1000 - now)
    return BreakerSummary("open" if wait else "half_open", 0, 0, wait)


def _history_key(prefix: str, company_id: int) -> str:
    return f"{prefix}calls:{company_id}"
