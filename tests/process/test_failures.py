"""Errors: which may be retried, how calls are retried, and how an outage is logged."""

import asyncio
import time
from collections.abc import Callable
from functools import partial

import pytest
from aiokafka import errors as kafka
from asyncpg import exceptions as pg
from redis import exceptions as redis
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from structlog.testing import capture_logs

from engine.process.failures import (
    Backoff,
    ServerErrors,
    database_may_recover,
    kafka_may_recover,
    redis_may_recover,
    retry,
)
from engine.process.health import probe, run_checks
from engine.process.metrics import Metrics
from tests.servers.waiting import eventually

FAILED, BACK = "server failed, trying again", "server answers again"


@pytest.mark.parametrize(
    ("may_recover", "error", "passes"),
    [
        (redis_may_recover, redis.ResponseError("MISCONF Redis is configured to save"), True),
        (redis_may_recover, redis.ResponseError("ERR user_script: 63: -OOM command not"), True),
        (redis_may_recover, redis.ResponseError("WRONGTYPE"), False),
        (kafka_may_recover, kafka.NotLeaderForPartitionError(), True),
        (kafka_may_recover, kafka.TopicAuthorizationFailedError(), False),
        (kafka_may_recover, kafka.InvalidTimestampError(), False),  # a clock that is far ahead
        (database_may_recover, DBAPIError("", None, pg.AdminShutdownError("")), True),
        (database_may_recover, pg.InvalidCachedStatementError("after a migration"), True),
        (database_may_recover, PoolTimeoutError(), True),
        (database_may_recover, ProgrammingError("", None, pg.UndefinedTableError("")), False),
    ],
)
def test_temporary_errors_are_retried(
    may_recover: Callable[[Exception], bool], error: Exception, passes: bool
) -> None:
    assert may_recover(error) is passes


class Server:
    """Gives these answers in turn, the last one for ever."""

    def __init__(self, *answers: BaseException | int) -> None:
        self.answers = list(answers)
        self.calls = 0

    async def __call__(self) -> int:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.calls += 1
        if isinstance(answer, BaseException):
            raise answer
        return answer


async def no_sleep(_: float) -> None:
    await asyncio.sleep(0)


def errors_of(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("proximity_redis_errors_total")


async def test_a_call_is_tried_until_the_server_answers(metrics: Metrics) -> None:
    server = Server(redis.ConnectionError(), TimeoutError(), 5)
    with capture_logs() as logs:
        call = retry(server, metrics.redis_errors, "a test", backoff=Backoff(sleep=no_sleep))
        assert await call == 5
    assert errors_of(metrics) == 2
    assert [line["event"] for line in logs] == [FAILED, BACK]


async def test_a_try_has_a_deadline_and_a_cancellation_is_raised_at_once(metrics: Metrics) -> None:
    async def hangs() -> None:
        await asyncio.Event().wait()

    backoff = Backoff(sleep=no_sleep)
    call = retry(hangs, metrics.redis_errors, "a test", deadline=0.05, backoff=backoff)
    task = asyncio.create_task(call)
    await eventually(lambda: (errors_of(metrics) or 0) > 1, what="two tries")
    task.cancel()
    await asyncio.wait([task], timeout=90)
    assert task.cancelled()


def test_an_outage_of_a_kind_of_call_is_logged_once_and_so_is_its_end() -> None:
    """It goes on while another kind of call succeeds: a Redis that is full answers a ping."""
    now = 0.0
    errors = ServerErrors("redis", may_recover=redis_may_recover, clock=lambda: now)
    with capture_logs() as logs:
        for second in range(100):
            now = second
            errors.failed(OSError("no route"), "claims")
            errors.answered("ping")
        errors.answered("claims")
        errors.answered("claims")
    assert [line["event"] for line in logs] == [FAILED, BACK]
    expected = {"server": "redis", "what": "claims", "error": "OSError: no route"}
    assert expected.items() <= dict(logs[0]).items()
    assert (logs[1]["what"], logs[1]["seconds"]) == ("claims", 99)


async def test_checks_run_concurrently_and_each_is_bounded(metrics: Metrics) -> None:
    async def hangs() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(5)  # a connection that takes its time to be given up

    async def breaks() -> bool:
        raise ValueError

    well = partial(probe, partial(no_sleep, 0), "ping", metrics.redis_errors)
    hanging = partial(probe, hangs, "ping", metrics.sql_errors)
    began = time.monotonic()
    found = await run_checks({"a": hanging, "b": breaks, "c": well})
    assert found == {"a": False, "b": False, "c": True}
    assert time.monotonic() - began < 20
    assert metrics.registry.get_sample_value("proximity_sql_errors_total") == 1
