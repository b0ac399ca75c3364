"""GET /statistics/hours and /statistics/reasons: a company's own sums, and nobody else's."""

from collections import Counter
from datetime import date, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from catalog.models import Account
from engine.redis.figure_store import CompanyDay, FigureStore
from rules.day_figures import CampaignReason, DayFigures
from rules.model import Reason
from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, Headers

DAY = timedelta(days=1)


@pytest.fixture
async def owner(api: Harness) -> Headers:
    return await api.account()


async def company_of(api: Harness, headers: Headers) -> int:
    query = select(Account.company_id).where(Account.email == headers["x-service-key"])
    async with api.database.read() as session:
        return int(await session.scalar(query) or 0)


async def campaigns_of(
    api: Harness, headers: Headers, bodies: Bodies, count: int
) -> tuple[int, list[int]]:
    venue = (await api.call("POST", "/region", headers, bodies.venue(name="Pier"))).json()["id"]
    path = f"/lieu/{venue}/campaign"
    made = [
        (await api.call("POST", path, headers, bodies.campaign(name=f"Boat {number}"))).json()["id"]
        for number in range(count)
    ]
    return venue, made


async def add(api: Harness, company: int, days: dict[Any, DayFigures]) -> None:
    store = FigureStore(redis=api.stores.redis, prefix="proximity:", deadline=10.0)
    await store.add({CompanyDay(company, day): figures for day, figures in days.items()})


def closed(*campaigns: int, times: int = 1) -> DayFigures:
    """The first campaign ended at each detection, the second at each other one, and so on."""
    counts = {
        CampaignReason(number, Reason.ENDED): times * (len(campaigns) - place)
        for place, number in enumerate(campaigns)
    }
    return DayFigures(
        reasons=Counter({Reason.ENDED: sum(counts.values()), Reason.TOO_FAR: 2 * times}),
        campaigns=Counter(counts),
    )


async def test_by_hour(api: Harness, owner: Headers, today: date):
    yesterday = today - DAY
    company = await company_of(api, owner)
    late = DayFigures(detections=Counter({23: 8, 3: 2}))
    early = DayFigures(detections=Counter({0: 5}), notifications=Counter({0: 1, 1: 2}))
    await add(api, company, {yesterday: late, today: early})
    found = (await api.call("GET", "/statistics/hours", owner)).json()
    assert found == [
        {"hour": f"{yesterday}T03:00:00+0000", "detections": 2, "notifications": 0},
        {"hour": f"{yesterday}T23:00:00+0000", "detections": 8, "notifications": 0},
        {"hour": f"{today}T00:00:00+0000", "detections": 5, "notifications": 1},
        {"hour": f"{today}T01:00:00+0000", "detections": 0, "notifications": 2},
    ]
    only = f"/statistics/hours?from={today}&to={today}"
    assert (await api.call("GET", only, owner)).json() == found[2:]
    stranger = await api.account()
    for path in ("/statistics/hours", "/statistics/reasons"):
        assert (await api.call("GET", path, stranger)).json() == []


async def test_by_reason_and_campaign(api: Harness, owner: Headers, bodies: Bodies, today: date):
    company = await company_of(api, owner)
    venue, (first, second, third) = await campaigns_of(api, owner, bodies, 3)
    days = {today - DAY: closed(first, second, third), today: closed(second, times=4)}
    await add(api, company, days)
    found = (await api.call("GET", "/statistics/reasons", owner)).json()
    assert [(each["reason"], each["count"]) for each in found] == [("ended", 10), ("too_far", 10)]
    assert found[1]["campaigns"] == []
    place = {"venue_id": venue, "venue": "Pier"}
    names = (await api.call("GET", f"/lieu/{venue}/campaign", owner)).json()
    name = {each["id"]: each["name"] for each in names}
    expected = [
        {**place, "id": number, "name": name[number], "count": count}
        for number, count in ((second, 6), (first, 3), (third, 1))
    ]
    assert found[0]["campaigns"] == expected
    # What is gone keeps its name.
    await api.call("DELETE", f"/lieu/{venue}/campaign/{second}", owner)
    shortest = (await api.call("GET", "/statistics/reasons?limit=1", owner)).json()
    assert shortest[0]["campaigns"] == expected[:1]
    none = (await api.call("GET", f"/statistics/reasons?limit=0&from={today}", owner)).json()
    assert [(each["count"], each["campaigns"]) for each in none] == [(8, []), (4, [])]


async def test_another_companys_campaign_has_no_name_here(
    api: Harness, owner: Headers, bodies: Bodies, today: date
):
    """Also if the sums contain its id."""
    _, (theirs,) = await campaigns_of(api, await api.account(), bodies, 1)
    await add(api, await company_of(api, owner), {today: closed(theirs)})
    (ended, _) = sorted(
        (await api.call("GET", "/statistics/reasons", owner)).json(), key=lambda one: one["reason"]
    )
    assert (ended["count"], ended["campaigns"]) == (1, [])


@pytest.mark.parametrize("path", ["/statistics/hours", "/statistics/reasons"])
async def test_bad_parameters_are_named(api: Harness, owner: Headers, today: date, path: str):
    month = today - 31 * DAY
    for query in ("from=x", f"from={today}&to={today - DAY}", f"from={month}&to={today}"):
        refused = await api.call("GET", f"{path}?{query}", owner)
        assert (refused.status_code, list(refused.json()["fields"])) == (400, ["from"]), query
    longest = f"{path}?from={month + DAY}&to={today}"
    assert (await api.call("GET", longest, owner)).status_code == 200
    if path.endswith("reasons"):
        refused = await api.call("GET", f"{path}?limit=101", owner)
        assert list(refused.json()["fields"]) == ["limit"]
