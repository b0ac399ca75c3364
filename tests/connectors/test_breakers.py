"""Breakers on every kind of Redis."""

import time
from collections.abc import AsyncIterator

import pytest

from catalog.redis_connection import connect_redis
from connectors.breaker import (
    CLOSED,
    BreakerPolicy,
    BreakerReport,
    BreakerState,
    BreakerStore,
    ReportPurpose,
)
from engine.connector.stores import RedisBreakers

POLICY = BreakerPolicy(window=20, failures=10, pause=10.0, lease=5.0)
NOW = float(int(time.time()))
GOOD, BAD = (False,), (True,)
PROBER = BreakerState(is_open=True, is_prober=True)

OUTCOMES, REQUEST_PROBE = ReportPurpose.OUTCOMES, ReportPurpose.REQUEST_PROBE
PROBE_PASSED, PROBE_FAILED = ReportPurpose.PROBE_PASSED, ReportPurpose.PROBE_FAILED
PROBE_DROPPED = ReportPurpose.PROBE_DROPPED


@pytest.fixture(params=["embedded_redis", "redis", "redis_cluster"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[BreakerStore]:
    redis = connect_redis(str(request.getfixturevalue(f"{request.param}_url")))
    yield RedisBreakers(redis=redis, prefix="contract:", policy=POLICY, deadline=5.0)
    await redis.aclose()


def opened(wait: float) -> BreakerState:
    return BreakerState(is_open=True, wait=wait)


async def report_outcomes(
    store: BreakerStore,
    outcomes: tuple[bool, ...] = (),
    purpose: ReportPurpose = OUTCOMES,
    *,
    at: float = 0.0,
    by: str = "one",
    company: int = 7,
) -> BreakerState:
    """One report; `at` in seconds from NOW."""
    report = BreakerReport(company_id=company, outcomes=outcomes, purpose=purpose)
    (state,) = await store.exchange([report], prober=by, now=NOW + at)
    return state


async def test_it_begins_closed(store: BreakerStore) -> None:
    assert await report_outcomes(store, purpose=REQUEST_PROBE) == CLOSED


@pytest.mark.parametrize(
    ("outcomes", "opens"),
    [
        (BAD * 9, False),
        (BAD * 10, True),
        (GOOD * 11 + BAD * 9, False),
        (GOOD * 10 + BAD * 10, True),
        (GOOD * 1000 + BAD * 10, True),
        (BAD * 9 + GOOD * 11 + BAD * 9, False),
        (BAD * 9 + GOOD * 10 + BAD, True),
        ((BAD + GOOD) * 9 + BAD, True),
        ((BAD + GOOD * 2) * 50, False),
    ],
)
@pytest.mark.parametrize("one_by_one", [False, True])
async def test_it_opens_at_half_of_the_last_twenty(
    store: BreakerStore, outcomes: tuple[bool, ...], opens: bool, one_by_one: bool
) -> None:
    state = CLOSED
    if one_by_one:
        for failed in outcomes[-40:]:
            state = await report_outcomes(store, (failed,))
    else:
        state = await report_outcomes(store, outcomes)
    assert state == (opened(10.0) if opens else CLOSED)


async def test_outcomes_of_all_processes_are_added(store: BreakerStore) -> None:
    for number in range(9):
        assert await report_outcomes(store, BAD, by=f"process {number}") == CLOSED
    assert await report_outcomes(store, BAD, by="another") == opened(10.0)
    assert await report_outcomes(store, by="one that never failed", at=1) == opened(9.0)


async def test_companies_are_apart(store: BreakerStore) -> None:
    reports = [
        BreakerReport(company_id=number, outcomes=BAD * 10 if number % 2 else GOOD * 10)
        for number in range(40)
    ]
    states = await store.exchange(reports, prober="one", now=NOW)
    assert states == [opened(10.0) if number % 2 else CLOSED for number in range(40)]


async def test_while_it_is_open_outcomes_change_nothing(store: BreakerStore) -> None:
    await report_outcomes(store, BAD * 10)
    assert await report_outcomes(store, GOOD * 50, at=3) == opened(7.0)
    assert await report_outcomes(store, BAD * 50, at=4) == opened(6.0)
    assert await report_outcomes(store, purpose=REQUEST_PROBE, at=9.999) == opened(
        pytest.approx(0.001, abs=1e-6)  # type: ignore[arg-type]
    )


async def test_then_exactly_one_may_try(store: BreakerStore) -> None:
    await report_outcomes(store, BAD * 10)
    requested = [
        await report_outcomes(
            store, purpose=REQUEST_PROBE, at=10 + number / 10, by=f"process {number}"
        )
        for number in range(5)
    ]
    assert requested[0] == PROBER
    assert all(state.is_open and not state.is_prober for state in requested[1:])
    assert [state.wait for state in requested[1:]] == pytest.approx([4.9, 4.8, 4.7, 4.6])


async def test_the_probers_outcome_decides(store: BreakerStore) -> None:
    await report_outcomes(store, BAD * 10)
    assert await report_outcomes(store, purpose=REQUEST_PROBE, at=10) == PROBER
    assert await report_outcomes(store, purpose=PROBE_FAILED, at=11) == opened(10.0)
    assert await report_outcomes(store, purpose=REQUEST_PROBE, at=20, by="two") == opened(1.0)
    assert await report_outcomes(store, purpose=REQUEST_PROBE, at=21, by="two") == PROBER
    assert await report_outcomes(store, purpose=PROBE_PASSED, at=22, by="two") == CLOSED
    assert await report_outcomes(store, BAD * 9, at=23) == CLOSED
    assert await report_outcomes(store, BAD, at=24) == opened(10.0)


async def test_a_prober_that_made_no_call_returns_its_lease(store: BreakerStore) -> None:
    await report_outcomes(store, BAD * 10)
    assert await report_outcomes(store, purpose=REQUEST_PROBE, at=10) == PROBER
    assert await report_outcomes(store, purpose=PROBE_DROPPED, at=11) == opened(0.0)
    assert await report_outcomes(store, purpose=REQUEST_PROBE, at=11, by="two") == PROBER


async def test_a_prober_that_does_not_report_is_replaced(store: BreakerStore) -> None:
    await report_outcomes(store, BAD * 10)
    assert await report_outcomes(store, purpose=REQUEST_PROBE, at=10) == PROBER
    assert not (await report_outcomes(store, purpose=REQUEST_PROBE, at=14.9, by="two")).is_prober
    assert await report_outcomes(store, purpose=REQUEST_PROBE, at=15, by="two") == PROBER
    assert (await report_outcomes(store, purpose=PROBE_PASSED, at=16)).is_open
    assert await report_outcomes(store, purpose=PROBE_PASSED, at=17, by="two") == CLOSED


@pytest.mark.parametrize("purpose", [PROBE_PASSED, PROBE_FAILED, PROBE_DROPPED])
async def test_a_probe_outcome_of_another_process_is_ignored(
    store: BreakerStore, purpose: ReportPurpose
) -> None:
    await report_outcomes(store, BAD * 10)
    assert await report_outcomes(store, purpose=purpose, at=1, by="two") == opened(9.0)
    assert await report_outcomes(store, purpose=REQUEST_PROBE, at=10) == PROBER
    assert (await report_outcomes(store, purpose=purpose, at=11, by="two")).wait == pytest.approx(
        4.0
    )


async def test_redis_forgets_breakers_without_reports(any_redis_url: str) -> None:
    redis = connect_redis(any_redis_url)
    store = RedisBreakers(redis=redis, prefix="contract:", policy=POLICY, deadline=5.0)
    await report_outcomes(store, BAD * 10)
    await report_outcomes(store, GOOD, company=8)
    keys = [key async for key in redis.scan_iter("contract:*")]
    lives = [await redis.pttl(key) for key in keys]
    await redis.aclose()
    assert len(keys) == 2
    assert all(590_000 < life <= 600_000 for life in lives)
