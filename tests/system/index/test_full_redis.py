"""A full Redis is reported, and recovers."""

import pytest
from redis.exceptions import OutOfMemoryError
from structlog.testing import capture_logs

from catalog.redis_connection import RedisClient
from engine.process.health import ServerProbe
from engine.process.metrics import Metrics
from engine.redis.role_states import RedisInspection
from tests.system.index.reader import Reader

MEGABYTE = 1024 * 1024


async def used(redis: RedisClient) -> int:
    return int((await redis.info("memory"))["used_memory"])


async def test_a_full_redis_is_seen_and_can_be_relieved(
    reader: Reader, redis: RedisClient, metrics: Metrics
) -> None:
    """Switching a campaign off reaches the triggers although Redis is full."""
    await reader.edit(html="x" * MEGABYTE)
    inspection = RedisInspection(redis=redis, metrics=metrics, deadline=5.0)

    async def write() -> None:
        await redis.set("test:probe", b"")

    question = ServerProbe(write, operation="write", errors=metrics.redis_errors)
    async with reader.kept():
        await reader.until(fires=True)
        await inspection.inspect()
        assert await question.answers()
        with capture_logs() as logs:
            await redis.config_set("maxmemory", await used(redis) - 100_000)
            with pytest.raises(OutOfMemoryError):
                await redis.set("test:claim", b"")
            assert not await question.answers()
            assert not await question.answers()
            await inspection.inspect()
            await inspection.inspect()
            assert _value(metrics, "proximity_redis_memory_ratio") > 1
            assert _value(metrics, "proximity_redis_errors_total") == 2
            await reader.edit(active=False)
            await reader.until(fires=False)
        assert [line["event"] for line in logs if line["log_level"] == "error"] == [
            "server failed, trying again",
            "Redis is nearly full, and then no campaign fires: give it more memory",
        ]
        with capture_logs() as logs:
            assert await question.answers(), "what the campaign took is free again"
            await redis.config_set("maxmemory", 0)
            await inspection.inspect()
        events = [line["event"] for line in logs]
        assert events == ["server answers again", "Redis has room again"]


def _value(metrics: Metrics, name: str) -> float:
    value = metrics.registry.get_sample_value(name)
    assert value is not None
    return value
