"""What account holders see of their calls, in Redis: the last ones, and the breaker."""

from collections import deque
from dataclasses import dataclass

import msgspec
from redis.exceptions import RedisError

from connectors.model import BreakerSummary, CallHistory, PastCall
from connectors.schedule import Breaker
from engine.process.metrics import Metrics
from engine.redis.store import RedisStore, readable, write_often

KEPT = 50  # calls of a company in its history
_KEPT_SECONDS = 24 * 3600
_GATHER_SECONDS = 0.25
_BREAKER_SECONDS = 600

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(PastCall).decode
# The last outcomes (true for a failure), and until when it is open.
_decode_breaker = msgspec.msgpack.Decoder(tuple[list[bool], float | None]).decode


@dataclass(kw_only=True, eq=False)
class CallHistoryWriter(RedisStore):
    """Writes each company's last calls and its breaker, a few times a second.

    No call waits for it, and what cannot be written is dropped. `run` must be running. Of the
    breakers of several processes the one that was used last is kept.
    """

    metrics: Metrics

    def __post_init__(self) -> None:
        self._errors = self.metrics.redis_errors
        self._calls: dict[int, deque[PastCall]] = {}
        self._breakers: dict[int, Breaker] = {}

    def add(self, company_id: int, call: PastCall) -> None:
        """Write the call soon; only the newest KEPT calls of each company are written."""
        self._calls.setdefault(company_id, deque(maxlen=KEPT)).append(call)

    def add_breaker(self, company_id: int, breaker: Breaker) -> None:
        """Write the breaker soon, as it is then."""
        self._breakers[company_id] = breaker

    async def run(self) -> None:
        await write_often(self.write, _GATHER_SECONDS)

    async def write(self) -> None:
        calls, self._calls = self._calls, {}
        breakers, self._breakers = self._breakers, {}
        if not calls and not breakers:
            return
        pipeline = self._pipeline()
        for company_id, made in calls.items():
            key = _history_key(self.prefix, company_id)
            pipeline.lpush(key, *map(_encode, made))
            pipeline.ltrim(key, 0, KEPT - 1)
            pipeline.expire(key, _KEPT_SECONDS)
        for company_id, breaker in breakers.items():
            state = _encode((list(breaker.outcomes), breaker.open_until))
            pipeline.set(_breaker_key(self.prefix, company_id), state, ex=_BREAKER_SECONDS)
        try:
            await self._answer(pipeline.execute())
        except (RedisError, OSError, TimeoutError) as error:
            self._errors.failed(error, "past calls")
        else:
            self._errors.answered("past calls")


def _breaker_key(prefix: str, company_id: int) -> str:
    return f"{prefix}breaker-state:{company_id}"


class CallHistoryReader(RedisStore):
    """Reads what CallHistoryWriter wrote."""

    async def read(self, company_id: int, now: float) -> CallHistory:
        """The last calls, and the breaker as of `now` (epoch s)."""
        pipeline = self._pipeline()
        pipeline.lrange(_history_key(self.prefix, company_id), 0, KEPT - 1)
        pipeline.get(_breaker_key(self.prefix, company_id))
        written, state = await self._answer(pipeline.execute())
        return CallHistory(_summary(state, now), readable(written, _decode))


def _summary(state: bytes | None, now: float) -> BreakerSummary:
    outcomes, open_until = _decode_breaker(state) if state else ([], None)
    if open_until is None:
        return BreakerSummary("closed", len(outcomes), sum(outcomes), 0.0)
    wait = max(0.0, open_until - now)
    return BreakerSummary("open" if wait else "half_open", 0, 0, wait)


def _history_key(prefix: str, company_id: int) -> str:
    return f"{prefix}calls:{company_id}"
