"""/statistics and /realtime: a company's own figures, as JSON and as CSV."""

import csv
import io
import time
from datetime import date, timedelta

import pytest

from api import statistics
from api.reports import LiveDecision, LiveOutcome
from catalog.models import Statistic, VisitStatistic
from engine.redis.decisions import TailStore
from engine.redis.figures import CompanyDay, FigureStore
from rules.model import Zone
from tests.api.harness import Bodies, Harness, Headers, error_body
from tests.servers.schema import on_sqlite

DAY = timedelta(days=1)
DAYS = 5


async def fill(
    api: Harness, headers: Headers, bodies: Bodies, today: date, name: str = "x;=1+1"
) -> dict[str, int]:
    """Figures of the last days: of a venue, a beacon and a campaign that is gone."""
    venue = (await api.made("/region", headers, bodies.venue(name=name)))["id"]
    beacon = await api.made(f"/region/{venue}/beacon", headers, bodies.beacon())
    ids = {"venue": venue, "beacon": beacon["id"], "campaign": 10_000 + venue}
    for back in range(DAYS):
        for kind, ref in ids.items():
            of = {"day": today - back * DAY, "kind": kind, "ref": ref, "venue_id": venue}
            await api.add(Statistic(**of, detections=10 + back, devices=2, notifications=1))
    return ids


async def test_the_lines_of_the_company_in_order(
    api: Harness, owner: Headers, bodies: Bodies, today: date, monkeypatch: pytest.MonkeyPatch
):
    ids = await fill(api, owner, bodies, today)
    await fill(api, await api.account(), bodies, today)
    whole = await api.read("/statistics", owner)
    assert [(line["day"], line["kind"], line["id"]) for line in whole] == [
        (str(today - back * DAY), kind, ids[kind])
        for back in reversed(range(DAYS))
        for kind in ("venue", "beacon", "campaign")
    ]
    assert {line["venue"] for line in whole} == {"x;=1+1"}
    assert [line["name"] for line in whole if line["kind"] == "campaign"] == [""] * DAYS
    # However small the pages are.
    for size in (1, 2, 7):
        monkeypatch.setattr(statistics, "_PAGE", size)
        assert await api.read("/statistics", owner) == whole
    assert await api.read("/statistics", await api.account()) == []


async def test_a_choice_of_them(api: Harness, owner: Headers, bodies: Bodies, today: date):
    ids = await fill(api, owner, bodies, today)
    # A venue is chosen by its id, also where another one has this name.
    await fill(api, owner, bodies, today, name=str(ids["venue"]))
    yesterday = today - DAY
    for query, count in (
        (f"from={yesterday}&to={yesterday}", 2 * 3),
        ("kind=beacon", 2 * DAYS),
        (f"venue={ids['venue']}", DAYS * 3),
        (f"venue={ids['venue']}&kind=venue&from={today}", 1),
        (f"to={date.max}", 0),
        (f"to={date.min}", 0),
    ):
        assert len(await api.read(f"/statistics?{query}", owner)) == count, query


async def test_as_a_sheet(api: Harness, owner: Headers, bodies: Bodies, today: date):
    await fill(api, owner, bodies, today)
    plain, sheet = [
        await api.call("GET", "/statistics", owner | {"accept": accept})
        for accept in ("application/json, text/csv", "text/csv; q=0.9, application/json")
    ]
    assert sheet.headers["content-type"].startswith("text/csv")
    header, *rows = csv.reader(io.StringIO(sheet.text))
    assert (header, len(rows)) == (list(plain.json()[0]), len(plain.json()))
    # No cell is a formula, nor becomes one where ; separates cells.
    assert {row[header.index("venue")] for row in rows} == {"x;'=1+1"}


async def test_sums_by_day_and_by_record(api: Harness, owner: Headers, bodies: Bodies, today: date):
    ids = await fill(api, owner, bodies, today)
    await fill(api, owner, bodies, today)
    await fill(api, await api.account(), bodies, today)
    path = f"/lieu/{ids['venue']}/campaign"
    large = await api.made(path, owner, bodies.campaign())
    of = {"day": today, "kind": "campaign", "ref": large["id"], "venue_id": ids["venue"]}
    await api.add(Statistic(**of, detections=0, devices=5, notifications=5))
    last = (await api.read("/statistics/days", owner))[-1]
    sums = {"detections": 20, "place_detections": 0, "device_days": 4, "notifications": 2}
    assert last == {"day": str(today), **sums}
    of_venue = await api.read(f"/statistics/days?venue={ids['venue']}", owner)
    assert [each["detections"] for each in of_venue] == [14, 13, 12, 11, 10]
    (of_one,) = await api.read(f"/statistics/days?kind=campaign&id={large['id']}", owner)
    assert of_one["notifications"] == 5
    query = f"/statistics/totals?kind=campaign&venue={ids['venue']}"
    totals = await api.read(query, owner)
    found = [(each["id"], each["notifications"], each["device_days"]) for each in totals]
    assert sorted(found) == sorted([(large["id"], 5, 5), (ids["campaign"], 5, 10)])
    assert await api.read(f"{query}&limit=1", owner) == totals[:1]
    # What is gone keeps its figures and its name.
    await api.call("DELETE", f"{path}/{large['id']}", owner)
    assert await api.read(query, owner) == totals
    assert [each["kind"] for each in await api.read("/statistics/totals", owner)] == ["venue"] * 2


async def test_by_reason_and_campaign(
    api: Harness, owner: Headers, bodies: Bodies, today: date, venue: int
):
    path = f"/lieu/{venue}/campaign"
    first, second = [await api.made(path, owner, bodies.campaign()) for _ in range(2)]
    other = await api.account()
    there = (await api.made("/region", other, bodies.venue()))["id"]
    theirs = await api.made(f"/lieu/{there}/campaign", other, bodies.campaign())
    counts = {first["id"]: 1, second["id"]: 6, theirs["id"]: 3}
    sums = {f"c:{number}:ended": count for number, count in counts.items()}
    day = sums | {"r:ended": 10, "r:too_far": 2}
    store = FigureStore(redis=api.stores.redis, prefix="proximity:", deadline=10.0)
    company = await api.company_of(owner)
    earlier = CompanyDay(company, today - DAY)
    await store.add({CompanyDay(company, today): day, earlier: {"r:outside": 1}})
    # What is gone keeps its name; another company's campaign has none here.
    await api.call("DELETE", f"{path}/{second['id']}", owner)
    *found, _ = await api.read("/statistics/reasons", owner)
    assert [(each["reason"], each["count"]) for each in found] == [("ended", 10), ("too_far", 2)]
    assert await api.read(f"/statistics/reasons?from={today}&to={today}", owner) == found
    assert [(each["name"], each["count"]) for each in found[0]["campaigns"]] == [
        (second["name"], 6),
        (first["name"], 1),
    ]
    assert {each["venue_id"] for each in found[0]["campaigns"]} == {venue}
    shortest = await api.read(f"/statistics/reasons?from={today}&limit=0", owner)
    assert [each["campaigns"] for each in shortest] == [[], []]
    (alone,) = await api.read(f"/statistics/reasons?campaign={first['id']}", owner)
    assert (alone["reason"], alone["count"]) == ("ended", 1)


async def test_live_decisions(api: Harness, owner: Headers):
    company = await api.company_of(owner)
    store = TailStore(redis=api.stores.redis, prefix="proximity:", deadline=10.0)
    started = await api.read("/realtime/decisions", owner)
    assert started["decisions"] == []
    at = time.time()
    outcomes = [LiveOutcome(4, "Books", "granted"), LiveOutcome(5, "Loans", "throttled")]
    granted = LiveDecision(at, at, company, "Library", "Desk", Zone.NEAR, "granted", outcomes, 0)
    far = LiveDecision(at, at, company, "Depot", "Desk", Zone.NEAR, "too_far", [], 0)
    await store.write({f"company-{company}": [granted, far]})

    async def seen(query: str, headers: Headers = owner) -> list[str]:
        path = f"/realtime/decisions?after={started['after']}{query}"
        return [each["lieu"] for each in (await api.read(path, headers))["decisions"]]

    assert await seen("") == ["Library", "Depot"]
    assert await seen("&lieu=Depot") == await seen("&reason=too_far") == ["Depot"]
    assert await seen("&campaign=5") == await seen("&reason=throttled") == ["Library"]
    assert await seen("&campaign=4&reason=throttled") == []
    assert await seen("", await api.account()) == []


@on_sqlite
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/statistics?from=yesterday&to=2026-13-01", {"from", "to"}),
        ("/statistics?from=2001-01-02&to=2001-01-01", {"from"}),
        ("/statistics/reasons?from=2001-01-01&to=2026-01-01", {"from"}),
        ("/statistics/totals?kind=phone&venue=0&limit=101", {"kind", "venue", "limit"}),
        ("/realtime/decisions?after=$&campaign=0&reason=bad", {"after", "campaign", "reason"}),
    ],
)
async def test_refused_parameters(api: Harness, owner: Headers, path: str, fields: set[str]):
    assert set(error_body(await api.call("GET", path, owner), 400)["fields"]) == fields


async def test_visits(api: Harness, owner: Headers, bodies: Bodies, today: date):
    ids = await fill(api, owner, bodies, today)
    others = await fill(api, await api.account(), bodies, today)
    for venue in (ids["venue"], others["venue"]):
        of = {"day": today, "kind": "venue", "ref": venue, "venue_id": venue}
        await api.add(VisitStatistic(**of, minutes=0, begun=3, ended=1, seconds=30))
        await api.add(VisitStatistic(**of, minutes=5, begun=0, ended=1, seconds=400))
    (found,) = await api.read("/statistics/visits", owner)
    assert (found["id"], found["kind"], found["venue"]) == (ids["venue"], "venue", "x;=1+1")
    assert [found[name] for name in ("visits", "ended", "seconds", "open")] == [3, 2, 430, 1]
    for query in ("kind=beacon", f"venue={others['venue']}", f"to={today - DAY}"):
        assert await api.read(f"/statistics/visits?{query}", owner) == []
    assert (await api.call("GET", "/statistics/visits?kind=nfc", owner)).status_code == 400
