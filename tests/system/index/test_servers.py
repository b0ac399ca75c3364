"""A full Redis, an eviction policy, clocks that differ: logged once, shown, logged when over."""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError
from structlog.testing import capture_logs

from catalog.redis_connection import RedisClient
from engine.process.health import SKEW_SECONDS, ClockSkew
from engine.process.metrics import Metrics
from engine.process.settings_sources import load_settings
from engine.redis.role_states import RedisInspection
from engine.wiring.parts import ProcessParts, Stores, open_stores
from tests.system.index.reader import Reader

MINUTES = 240.0


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def opened(redis_cluster_url: str, postgres_url: str) -> AsyncIterator[Stores]:
    settings = load_settings(None, redis_url=redis_cluster_url, database_url=postgres_url)
    async with open_stores(settings) as stores:
        yield stores


async def test_a_full_redis_is_seen_and_can_be_relieved(
    reader: Reader, redis: RedisClient, metrics: Metrics
) -> None:
    """Switching a campaign off reaches the triggers although Redis is full."""
    await reader.edit(html="x" * 1024 * 1024)
    inspection = RedisInspection(redis=redis, metrics=metrics, deadline=5.0)
    async with reader.kept():
        await reader.until(fires=True)
        with capture_logs() as logs:
            used = (await redis.info("memory"))["used_memory"]
            await redis.config_set("maxmemory", int(used) - 100_000)
            with pytest.raises(OutOfMemoryError):
                await redis.set("test:claim", b"")
            await inspection.inspect()
            await inspection.inspect()
            assert (metrics.registry.get_sample_value("proximity_redis_memory_ratio") or 0) > 1
            await reader.edit(active=False)
            await reader.until(fires=False)
            await redis.config_set("maxmemory", 0)
            await inspection.inspect()
    assert [line["event"] for line in logs if line["event"].startswith("Redis ")] == [
        "Redis is nearly full, and then no campaign fires: give it more memory",
        "Redis has room again",
    ]


async def test_an_eviction_policy_is_logged_once(redis: RedisClient, metrics: Metrics) -> None:
    inspection = RedisInspection(redis=redis, metrics=metrics, deadline=5.0)
    with capture_logs() as logs:
        for policy, evicts in (("allkeys-lru", 1), ("allkeys-lru", 1), ("noeviction", 0)):
            await redis.config_set("maxmemory-policy", policy)
            await inspection.inspect()
            assert metrics.registry.get_sample_value("proximity_redis_evicts") == evicts
    assert [(line["log_level"], line["policy"]) for line in logs] == [
        ("warning", "allkeys-lru"),
        ("info", "noeviction"),
    ]


async def measure(skew: ClockSkew) -> None:
    for server in skew.servers:
        await skew.measure(server)


@pytest.mark.parametrize("shift", [MINUTES, -MINUTES])
async def test_a_clock_that_is_minutes_off_is_logged_once(
    opened: Stores, metrics: Metrics, shift: float
) -> None:
    unused: Any = None
    skew = ProcessParts(settings=unused, stores=opened, publisher=unused, metrics=metrics).clocks
    skew._clock = lambda: time.time() + shift
    with capture_logs() as logs:
        await measure(skew)
        await measure(skew)
    logged = [(line["log_level"], line["server"]) for line in logs]
    assert logged == [("error", "redis"), ("error", "sql")]
    assert not skew.agrees_within(SKEW_SECONDS)
    for server in ("redis", "sql"):
        labels = {"server": server}
        shown = metrics.registry.get_sample_value("proximity_clock_skew_seconds", labels)
        assert shown == pytest.approx(shift, abs=30)
    skew._clock = time.time
    with capture_logs() as logs:
        await measure(skew)
    assert {line["event"] for line in logs} == {"the clocks agree again"}
    assert skew.agrees_within(SKEW_SECONDS)


async def test_one_server_with_a_wrong_clock_does_not_make_this_one_wrong(
    metrics: Metrics,
) -> None:
    async def right() -> float:
        return time.time()

    async def wrong() -> float:
        return time.time() - 86_400 * 32

    clocks = {"redis": right, "sql": wrong}
    skew = ClockSkew(clocks, metrics.clock_skew)
    with capture_logs() as logs:
        await measure(skew)
    assert [line["server"] for line in logs] == ["sql"]
    assert skew.agrees_within(SKEW_SECONDS)
