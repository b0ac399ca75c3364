"""An outage of a server is logged once, and so is its end."""

import asyncio
import time

import pytest
from structlog.testing import capture_logs

from engine.process.health import ServerProbe, run_checks
from engine.process.metrics import Metrics
from engine.process.server_errors import ServerErrors

FAILED = "server failed, trying again"
BACK = "server answers again"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def errors(metrics: Metrics, clock: Clock) -> ServerErrors:
    return ServerErrors(
        "redis",
        metrics.redis_errors._counter,
        may_recover=metrics.redis_errors.may_recover,
        clock=clock,
    )


def test_one_line_for_an_outage_and_one_for_its_end(
    errors: ServerErrors, metrics: Metrics, clock: Clock
) -> None:
    with capture_logs() as logs:
        for second in range(100):
            clock.now = second
            errors.failed(OSError("no route"), "claims")
        errors.answered("claims")
        errors.answered("claims")
    assert [line["event"] for line in logs] == [FAILED, BACK]
    expected = {"server": "redis", "what": "claims", "error": "OSError: no route"}
    assert expected.items() <= dict(logs[0]).items()
    assert (logs[1]["seconds"], logs[1]["failures"]) == (99, 100)
    assert metrics.registry.get_sample_value("proximity_redis_errors_total") == 100


def test_it_is_not_back_while_another_kind_of_call_fails(errors: ServerErrors) -> None:
    """A Redis that is full answers a ping."""
    with capture_logs() as logs:
        for _ in range(5):
            errors.failed(OSError(), "claims")
            errors.answered("question")
        errors.failed(OSError(), "question")
        errors.answered("claims")
        assert [line["event"] for line in logs] == [FAILED]
        errors.answered("question")
    assert [line["event"] for line in logs] == [FAILED, BACK]


def test_an_operation_that_is_no_longer_called_is_forgotten(
    errors: ServerErrors, clock: Clock
) -> None:
    with capture_logs() as logs:
        errors.failed(OSError(), "a partition that was revoked")
        clock.now = 30
        errors.answered("question")
        clock.now = 61
        errors.answered("question")
    assert [line["event"] for line in logs] == [FAILED, BACK]


def test_an_intermittent_server_does_not_fill_the_log(errors: ServerErrors, clock: Clock) -> None:
    with capture_logs() as logs:
        for tenth in range(300):
            clock.now = tenth / 10
            errors.failed(OSError(), "claims")
            errors.answered("claims")
    assert len(logs) <= 8
    with capture_logs() as logs:
        errors.failed(OSError(), "claims")
        clock.now += 11
        errors.failed(OSError(), "claims")
    assert [line["event"] for line in logs] == [FAILED]


async def test_those_who_ask_at_once_share_a_request(metrics: Metrics) -> None:
    requested = 0

    async def send_request() -> None:
        nonlocal requested
        requested += 1
        await asyncio.sleep(0.05)

    question = ServerProbe(send_request, operation="question", errors=metrics.redis_errors)
    assert await asyncio.gather(*(question.answers() for _ in range(5))) == [True] * 5
    assert requested == 1
    assert await question.answers()
    assert requested == 2


async def test_checks_run_concurrently_and_each_is_bounded(metrics: Metrics) -> None:
    async def hangs() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(5)  # a connection that takes its time to be given up

    async def breaks() -> bool:
        raise ValueError

    async def well() -> bool:
        return True

    hanging = ServerProbe(hangs, operation="question", errors=metrics.sql_errors)
    began = time.monotonic()
    found = await run_checks({"a": hanging.answers, "b": breaks, "c": well, "d": hanging.answers})
    assert found == {"a": False, "b": False, "c": True, "d": False}
    assert time.monotonic() - began < 4
    assert metrics.registry.get_sample_value("proximity_sql_errors_total") == 1
