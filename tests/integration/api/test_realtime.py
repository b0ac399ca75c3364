"""GET /realtime/decisions: what triggers pass on about the company, and about no other."""

import time

import pytest
from sqlalchemy import select

from catalog.models import Account
from engine.redis.tail_store import CampaignOutcome, TailedDecision, TailStore
from tests.integration.api.harness import Harness, Headers


@pytest.fixture
async def owner(api: Harness) -> Headers:
    return await api.account()


async def company_of(api: Harness, headers: Headers) -> int:
    query = select(Account.company_id).where(Account.email == headers["x-service-key"])
    async with api.database.read() as session:
        return int(await session.scalar(query) or 0)


def tailed(company: int, venue: str, reason: str, *campaigns: CampaignOutcome) -> TailedDecision:
    at = time.time()
    return TailedDecision(at, at, company, venue, "Desk", 2, reason, list(campaigns), 0)


async def test_forwarded_decisions_are_answered(api: Harness, owner: Headers):
    company = await company_of(api, owner)
    store = TailStore(redis=api.stores.redis, prefix="proximity:", deadline=10.0)
    sent = CampaignOutcome(4, "Books", "granted")
    held = CampaignOutcome(5, "Loans", "throttled")
    started = (await api.call("GET", "/realtime/decisions", owner)).json()
    assert started["decisions"] == []
    assert set(await store.watchers()) == {f"company-{company}"}
    decisions = [
        tailed(company, "Library", "granted", sent, held),
        tailed(company, "Depot", "too_far"),
    ]
    await store.write({f"company-{company}": decisions})

    async def seen(query: str) -> list[tuple[str, str]]:
        path = f"/realtime/decisions?after={started['after']}{query}"
        found = (await api.call("GET", path, owner)).json()["decisions"]
        return [(each["lieu"], each["reason"]) for each in found]

    both = [("Library", "granted"), ("Depot", "too_far")]
    assert await seen("") == both
    assert await seen("&lieu=Depot") == both[1:]
    assert await seen("&campaign=5") == both[:1]
    assert await seen("&reason=throttled") == both[:1]
    assert await seen("&reason=too_far") == both[1:]
    assert await seen("&campaign=4&reason=throttled") == []
    stranger = await api.account()
    theirs = await api.call("GET", f"/realtime/decisions?after={started['after']}", stranger)
    assert theirs.json()["decisions"] == []


async def test_bad_parameters_are_named(api: Harness, owner: Headers):
    for query in ("after=1", "after=$", "reason=bad", "campaign=0"):
        refused = await api.call("GET", f"/realtime/decisions?{query}", owner)
        field = query.partition("=")[0]
        assert (refused.status_code, list(refused.json()["fields"])) == (400, [field])
