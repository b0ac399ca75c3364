"""An eviction policy and clocks that differ are logged once, shown, and logged when over."""

import time
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from catalog.redis_connection import RedisClient
from engine.process.metrics import Metrics
from engine.process.settings_sources import load_settings
from engine.redis.role_states import RedisInspection
from engine.wiring.parts import Stores, open_stores
from engine.wiring.servers import ClockSkew, clock_skew

MINUTES = 240.0


@pytest.fixture
async def opened(redis_cluster_url: str, postgres_url: str) -> AsyncIterator[Stores]:
    settings = load_settings(None, redis_url=redis_cluster_url, database_url=postgres_url)
    async with open_stores(settings) as stores:
        yield stores


def skew_of(stores: Stores, metrics: Metrics, shift: float) -> ClockSkew:
    made = clock_skew(stores, metrics)
    made._clock = lambda: time.time() + shift
    return made


async def measure(skew: ClockSkew) -> None:
    for server in skew.servers:
        await skew.measure(server)


@pytest.mark.parametrize("shift", [MINUTES, -MINUTES])
async def test_a_clock_that_is_minutes_off_is_logged_once(
    opened: Stores, metrics: Metrics, shift: float
) -> None:
    skew = skew_of(opened, metrics, shift)
    with capture_logs() as logs:
        await measure(skew)
        await measure(skew)
    assert [(line["log_level"], line["server"]) for line in logs] == [
        ("error", "redis"),
        ("error", "sql"),
    ]
    assert not skew.agrees_within(skew.limit)
    assert skew.agrees_within(MINUTES + 60)
    assert not skew.agrees_within(MINUTES - 60)
    assert skew.agreed() == pytest.approx(shift, abs=30)
    for server in ("redis", "sql"):
        shown = metrics.registry.get_sample_value(
            "proximity_clock_skew_seconds", {"server": server}
        )
        assert shown == pytest.approx(shift, abs=30)
    skew._clock = time.time
    with capture_logs() as logs:
        await measure(skew)
    assert {line["event"] for line in logs} == {"the clocks agree again"}
    assert skew.agrees_within(skew.limit)


async def test_one_server_with_a_wrong_clock_does_not_make_this_one_wrong(
    metrics: Metrics,
) -> None:
    async def right() -> float:
        return time.time()

    async def wrong() -> float:
        return time.time() - 86_400 * 32

    skew = ClockSkew(
        read={"redis": right, "sql": wrong}, limit=30, gauge=metrics.clock_skew, deadline=2
    )
    assert skew.agrees_within(skew.limit)
    with capture_logs() as logs:
        await measure(skew)
    assert [line["server"] for line in logs] == ["sql"]
    assert skew.agrees_within(skew.limit)


async def test_an_eviction_policy_is_logged_once(redis: RedisClient, metrics: Metrics) -> None:
    inspection = RedisInspection(redis=redis, metrics=metrics, deadline=5.0)
    with capture_logs() as logs:
        await inspection.inspect()
        await redis.config_set("maxmemory-policy", "allkeys-lru")
        await inspection.inspect()
        await inspection.inspect()
        assert metrics.registry.get_sample_value("proximity_redis_evicts") == 1
        await redis.config_set("maxmemory-policy", "noeviction")
        await inspection.inspect()
    assert metrics.registry.get_sample_value("proximity_redis_evicts") == 0
    assert [(line["log_level"], line["policy"]) for line in logs] == [
        ("warning", "allkeys-lru"),
        ("info", "noeviction"),
    ]
