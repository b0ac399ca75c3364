"""GET /connector/calls: what the connector role wrote, of the caller's company alone."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress

import pytest
from pydantic import SecretStr
from redis.exceptions import RedisError

from api.sessions.sign_in import Passwords
from catalog.redis_connection import connect_redis
from connectors.breaker import BreakerPolicy, BreakerReport
from connectors.reports import PastCall
from engine.connector.call_history import KEPT, CallHistoryWriter, read_call_history
from engine.connector.redis_breakers import RedisBreakers
from engine.process.cancelling import cancel
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from tests.integration.api.harness import Harness, Headers, harness
from tests.servers.redis import RedisServer
from tests.servers.schema import make_schema
from tests.servers.waiting import eventually

POLICY = BreakerPolicy(window=20, failures=10, pause=60.0)


@pytest.fixture
async def owner(api: Harness) -> Headers:
    return await api.account()


async def company_of(api: Harness, owner: Headers) -> int:
    return int((await api.call("GET", "/profile", owner)).json()["company"]["id"])


def past(number: int, **fields: object) -> PastCall:
    values = {
        "at": 1_795_169_000.0 + number,
        "id": f"call {number}",
        "campaign": 7,
        "outcome": "published",
        "detail": "",
        "status": 200,
        "seconds": 0.04123,
        "tries": 1,
    }
    return PastCall(**(values | fields))  # type: ignore[arg-type]


async def write(
    api: Harness, settings: Settings, company_id: int, calls: Sequence[PastCall]
) -> None:
    """As the role does: collected calls are written when it stops."""
    calls_made = CallHistoryWriter(
        redis=api.stores.redis, prefix=settings.redis_prefix, deadline=5.0, metrics=Metrics()
    )
    running = asyncio.create_task(calls_made.run())
    await asyncio.sleep(0)
    for call in calls:
        calls_made.add(company_id, call)
    await cancel([running])


async def history(api: Harness, owner: Headers) -> dict:
    answer = await api.call("GET", "/connector/calls", owner)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def report(api: Harness, settings: Settings, company_id: int, outcomes: str) -> None:
    """Report the outcomes of calls: 1 for a failure."""
    breakers = RedisBreakers(
        redis=api.stores.redis, prefix=settings.redis_prefix, policy=POLICY, deadline=5.0
    )
    failed = tuple(each == "1" for each in outcomes)
    breaker_report = BreakerReport(company_id=company_id, outcomes=failed)
    await breakers.exchange([breaker_report], prober="one", now=time.time())


async def test_nothing_yet(api: Harness, owner: Headers):
    closed = {"state": "closed", "calls": 0, "failures": 0, "seconds": 0.0}
    assert await history(api, owner) == {"breaker": closed, "calls": []}


async def test_the_calls_of_the_company_newest_first(
    api: Harness, owner: Headers, settings: Settings
):
    other = await api.account()
    failed = past(
        2, outcome="connector_timeout", detail="no reply in time; 3 tries", status=None, tries=3
    )
    await write(api, settings, await company_of(api, owner), [past(1), failed])
    await write(api, settings, await company_of(api, other), [past(3)])
    newest, oldest = (await history(api, owner))["calls"]
    assert newest == {
        "id": "call 2",
        "create_on": "2026-11-20T10:03:22+0000",
        "campaign_id": 7,
        "outcome": "connector_timeout",
        "detail": "no reply in time; 3 tries",
        "status": None,
        "seconds": 0.041,
        "tries": 3,
    }
    assert (oldest["id"], oldest["status"]) == ("call 1", 200)
    assert [call["id"] for call in (await history(api, other))["calls"]] == ["call 3"]


async def test_the_list_is_short_and_ends(api: Harness, owner: Headers, settings: Settings):
    company_id = await company_of(api, owner)
    for start in (0, 30, 60):
        await write(api, settings, company_id, [past(start + n) for n in range(30)])
    key = f"{settings.redis_prefix}calls:{company_id}"
    await api.stores.redis.lset(key, 0, "of another version")
    ids = [call["id"] for call in (await history(api, owner))["calls"]]
    assert ids == [f"call {number}" for number in range(88, 89 - KEPT, -1)]
    assert 0 < await api.stores.redis.ttl(key) <= 24 * 3600


async def test_the_breaker(api: Harness, owner: Headers, settings: Settings):
    company_id = await company_of(api, owner)
    await report(api, settings, company_id, "0110")
    closed = (await history(api, owner))["breaker"]
    assert closed == {"state": "closed", "calls": 4, "failures": 2, "seconds": 0.0}
    await report(api, settings, company_id, "1" * 8)
    opened = (await history(api, owner))["breaker"]
    assert 0 < opened.pop("seconds") <= POLICY.pause
    assert opened == {"state": "open", "calls": 0, "failures": 0}
    key = f"{settings.redis_prefix}breaker:{{{company_id % 16}}}:{company_id}"
    await api.stores.redis.hset(key, "u", int(1000 * time.time()) - 1)
    assert (await history(api, owner))["breaker"]["state"] == "half_open"


async def test_the_role_continues_without_redis(own_redis: RedisServer):
    """Calls that cannot be written are dropped and counted; later calls are written."""
    redis = connect_redis(own_redis.url, timeout=0.5)
    metrics = Metrics()
    calls_made = CallHistoryWriter(redis=redis, prefix="t:", deadline=0.5, metrics=metrics)
    running = asyncio.create_task(calls_made.run())

    def failed() -> float:
        return metrics.registry.get_sample_value("proximity_redis_errors_total") or 0.0

    async def written() -> int:
        calls_made.add(1, past(2))
        with suppress(RedisError, OSError, TimeoutError):
            return int(await redis.llen("t:calls:1"))
        return 0

    own_redis.stop()
    calls_made.add(1, past(1))
    await eventually(failed, deadline=30, what="a failed write that is counted")
    own_redis.start()
    await eventually(written, deadline=30, what="a call that is written")
    newest = await read_call_history(redis, "t:", 1, now=time.time(), deadline=5.0)
    assert {call.id for call in newest.calls} == {"call 2"}
    assert not running.done()
    await cancel([running])
    await redis.aclose()


async def test_without_redis_the_answer_is_503(
    own_redis: RedisServer, settings: Settings, passwords: Passwords
):
    changed = settings.model_copy(update={"redis_url": SecretStr(own_redis.url)})
    await make_schema(changed.database_url.get_secret_value())
    async with harness(changed, passwords) as api:
        owner = await api.account()
        own_redis.stop()
        answer = await api.call("GET", "/connector/calls", owner)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "Redis" in answer.json()["message"]


async def test_on_a_cluster(redis_cluster_url: str):
    redis = connect_redis(redis_cluster_url)
    calls_made = CallHistoryWriter(redis=redis, prefix="t:", deadline=5.0, metrics=Metrics())
    running = asyncio.create_task(calls_made.run())
    for company_id in range(1, 250):
        calls_made.add(company_id, past(company_id))

    async def seen() -> bool:
        last = await read_call_history(redis, "t:", 249, now=time.time(), deadline=5.0)
        return [call.id for call in last.calls] == ["call 249"]

    await eventually(seen, what="the last company's call")
    await cancel([running])
    await redis.aclose()
