"""Calls to servers are retried after temporary errors, with growing pauses."""

import asyncio
import contextlib

import pytest
from redis import exceptions as redis
from structlog.testing import capture_logs

from engine.process.metrics import Metrics
from engine.process.retry import Backoff, retry


class Sleeper:
    """A clock on which pauses cost nothing."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


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


@pytest.fixture
def sleeper() -> Sleeper:
    return Sleeper()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def _errors(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("proximity_redis_errors_total")


async def test_a_call_is_tried_until_the_server_answers(metrics: Metrics, sleeper: Sleeper) -> None:
    server = Server(redis.ConnectionError(), TimeoutError(), 5)
    with capture_logs() as logs:
        found = await retry(server, metrics.redis_errors, "a test", backoff=Backoff(sleep=sleeper))
    assert found == 5
    assert _errors(metrics) == 2
    assert [line["event"] for line in logs] == [
        "server failed, trying again",
        "server answers again",
    ]


async def test_a_call_that_the_server_refuses_is_not_tried_again(metrics: Metrics) -> None:
    server = Server(redis.ResponseError("ERR"))
    with pytest.raises(redis.ResponseError):
        await retry(server, metrics.redis_errors, "a test")
    assert server.calls == 1
    assert _errors(metrics) == 0


async def test_another_sort_of_errors_may_be_given(metrics: Metrics, sleeper: Sleeper) -> None:
    server = Server(LookupError(), 5)
    call = retry(
        server,
        metrics.redis_errors,
        "a test",
        may_recover=lambda error: isinstance(error, LookupError),
        backoff=Backoff(sleep=sleeper),
    )
    assert await call == 5


async def test_pauses_double_up_to_the_last_and_half_is_chance(sleeper: Sleeper) -> None:
    backoff = Backoff(1.0, 5.0, sleep=sleeper)
    whole = [1.0, 2.0, 4.0, 5.0, 5.0]
    for _ in range(200):
        for _ in whole:
            await backoff.pause()
        backoff.reset()
    by_place = [sleeper.pauses[place :: len(whole)] for place in range(len(whole))]
    for pauses, longest in zip(by_place, whole, strict=True):
        assert longest / 2 <= min(pauses) < max(pauses) <= longest
        assert max(pauses) - min(pauses) > longest / 4


async def test_a_try_that_hangs_ends_at_its_deadline(metrics: Metrics, sleeper: Sleeper) -> None:
    tries = 0

    async def hangs_once() -> int:
        nonlocal tries
        tries += 1
        if tries == 1:
            await asyncio.Event().wait()
        return tries

    call = retry(
        hangs_once,
        metrics.redis_errors,
        "a test",
        deadline=0.05,
        backoff=Backoff(sleep=sleeper),
    )
    async with asyncio.timeout(10):
        assert await call == 2


@pytest.mark.parametrize("where", ["call", "pause"])
async def test_a_cancellation_is_raised_at_once(metrics: Metrics, where: str) -> None:
    started = asyncio.Event()

    async def hangs(_: float = 0.0) -> int:
        started.set()
        await asyncio.Event().wait()
        return 0

    async def sleep(seconds: float) -> None:
        await hangs(seconds)

    server = hangs if where == "call" else Server(redis.ConnectionError())
    task = asyncio.create_task(
        retry(server, metrics.redis_errors, "a test", deadline=60, backoff=Backoff(sleep=sleep))
    )
    await started.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
