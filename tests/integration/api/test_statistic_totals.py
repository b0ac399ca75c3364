"""GET /statistics/days and /statistics/totals: sums of a company's own figures."""

from datetime import date, timedelta

import pytest

from catalog.models import Statistic
from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, Headers


async def venue_with(
    api: Harness, headers: Headers, bodies: Bodies, today: date, *sent: int
) -> list[int]:
    """A venue's campaigns, of which each has sent so much yesterday, and twice as much today."""
    venue = (await api.call("POST", "/region", headers, bodies.venue())).json()["id"]
    campaigns = [
        (await api.call("POST", f"/lieu/{venue}/campaign", headers, bodies.campaign())).json()["id"]
        for _ in sent
    ]
    lines = [("venue", venue, sum(sent))]
    lines += [("campaign", number, figure) for number, figure in zip(campaigns, sent, strict=True)]
    async with api.database.write.begin() as session:
        session.add_all(
            Statistic(
                day=day,
                kind=kind,
                ref=ref,
                venue_id=venue,
                detections=10 * figure * times,
                devices=figure,
                notifications=figure * times,
            )
            for day, times in ((today - timedelta(days=1), 1), (today, 2))
            for kind, ref, figure in lines
        )
    return [venue, *campaigns]


@pytest.fixture
async def owner(api: Harness, bodies: Bodies, today: date) -> Headers:
    """Beside another company that has sent far more."""
    await venue_with(api, await api.account(), bodies, today, 900, 100)
    return await api.account()


async def test_by_day(api: Harness, owner: Headers, bodies: Bodies, today: date):
    first = await venue_with(api, owner, bodies, today, 3, 5)
    await venue_with(api, owner, bodies, today, 1)
    found = (await api.call("GET", "/statistics/days", owner)).json()
    assert found == [
        {"day": str(today - timedelta(days=1)), "detections": 90, "visits": 9, "notifications": 9},
        {"day": str(today), "detections": 180, "visits": 9, "notifications": 18},
    ]
    of_venue = f"/statistics/days?venue={first[0]}&from={today}"
    assert [day["notifications"] for day in (await api.call("GET", of_venue, owner)).json()] == [16]
    of_one = f"/statistics/days?kind=campaign&id={first[2]}"
    assert [d["notifications"] for d in (await api.call("GET", of_one, owner)).json()] == [5, 10]


async def test_by_record_the_largest_first(
    api: Harness, owner: Headers, bodies: Bodies, today: date
):
    venue, small, large, none = await venue_with(api, owner, bodies, today, 3, 5, 0)
    path = "/statistics/totals?kind=campaign"
    found = (await api.call("GET", path, owner)).json()
    assert [(each["id"], each["notifications"]) for each in found] == [
        (large, 15),
        (small, 9),
        (none, 0),
    ]
    assert (found[0]["visits"], found[0]["detections"], found[0]["venue_id"]) == (10, 150, venue)
    assert found[0]["name"].startswith("New books")
    shortest = (await api.call("GET", f"{path}&limit=1", owner)).json()
    assert [each["id"] for each in shortest] == [large]
    # What is gone keeps its figures and its name.
    await api.call("DELETE", f"/lieu/{venue}/campaign/{large}", owner)
    assert (await api.call("GET", path, owner)).json() == found
    venues = (await api.call("GET", "/statistics/totals", owner)).json()
    assert [(each["kind"], each["notifications"]) for each in venues] == [("venue", 24)]


@pytest.mark.parametrize("path", ["/statistics/days", "/statistics/totals"])
async def test_bad_parameters_are_named(api: Harness, owner: Headers, path: str):
    for query, field in (("kind=x", "kind"), ("from=x", "from"), ("venue=0", "venue")):
        refused = await api.call("GET", f"{path}?{query}", owner)
        assert (refused.status_code, list(refused.json()["fields"])) == (400, [field])
