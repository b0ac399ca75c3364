"""GET /statistics: a company's own figures, page by page, as JSON and as CSV."""

import csv
import io
from datetime import UTC, date, datetime, timedelta

import pytest

from api.routes import statistics
from catalog.models import Statistic
from tests.integration.api.bodies import Bodies
from tests.integration.api.harness import Harness, Headers

DAYS = 5


@pytest.fixture
async def owner(api: Harness) -> Headers:
    return await api.account()


async def fill(api: Harness, headers: Headers, bodies: Bodies, today: date) -> dict[str, int]:
    """Figures of the last days: of a venue, a beacon and a campaign that is gone."""
    venue = (await api.call("POST", "/region", headers, bodies.venue(name="=1+1"))).json()["id"]
    beacon = (await api.call("POST", f"/region/{venue}/beacon", headers, bodies.beacon())).json()
    ids = {"venue": venue, "beacon": beacon["id"], "campaign": 10_000 + venue}
    async with api.database.write.begin() as session:
        session.add_all(
            Statistic(
                day=today - timedelta(days=back),
                kind=kind,
                ref=ref,
                venue_id=venue,
                detections=10 + back,
                devices=2,
                notifications=1,
            )
            for back in range(DAYS)
            for kind, ref in ids.items()
        )
    return ids


async def test_the_lines_of_the_company_in_order(
    api: Harness, owner: Headers, bodies: Bodies, today: date, monkeypatch: pytest.MonkeyPatch
):
    ids = await fill(api, owner, bodies, today)
    other = await api.account()
    await fill(api, other, bodies, today)
    whole = (await api.call("GET", "/statistics", owner)).json()
    assert [(line["day"], line["kind"], line["id"]) for line in whole] == [
        (str(today - timedelta(days=back)), kind, ids[kind])
        for back in reversed(range(DAYS))
        for kind in ("venue", "beacon", "campaign")
    ]
    assert {line["venue"] for line in whole} == {"=1+1"}
    assert [line["name"] for line in whole if line["kind"] == "campaign"] == [""] * DAYS
    # However small the pages are.
    for size in (1, 2, 7):
        with monkeypatch.context() as patched:
            patched.setattr(statistics, "_PAGE", size)
            assert (await api.call("GET", "/statistics", owner)).json() == whole
    nobody = await api.account()
    assert (await api.call("GET", "/statistics", nobody)).json() == []


async def test_a_choice_of_them(api: Harness, owner: Headers, bodies: Bodies, today: date):
    ids = await fill(api, owner, bodies, today)
    second = await fill(api, owner, bodies, today)
    yesterday = today - timedelta(days=1)
    for query, count in (
        (f"from={yesterday}", 2 * 2 * 3),
        (f"to={yesterday}", 2 * (DAYS - 1) * 3),
        (f"from={yesterday}&to={yesterday}", 2 * 3),
        ("kind=beacon", 2 * DAYS),
        (f"venue={second['venue']}", DAYS * 3),
        (f"venue={ids['venue']}&kind=venue&from={today}", 1),
        ("from=2001-01-01&to=2001-12-31", 0),
    ):
        assert len((await api.call("GET", f"/statistics?{query}", owner)).json()) == count, query


async def test_the_day_of_a_venue_in_the_east(
    api: Harness, owner: Headers, bodies: Bodies, today: date
):
    """The local day begins up to 14 hours before that of UTC, and is shown from its beginning."""
    venue = (await api.call("POST", "/region", owner, bodies.venue())).json()["id"]
    there = (datetime.now(UTC) + timedelta(hours=14)).date()
    figures = {"detections": 1, "devices": 1, "notifications": 1}
    async with api.database.write.begin() as session:
        session.add(Statistic(day=there, kind="venue", ref=venue, venue_id=venue, **figures))
    for query in ("", f"?from={today}"):
        lines = (await api.call("GET", f"/statistics{query}", owner)).json()
        assert [line["day"] for line in lines] == [str(there)], query
    year = await api.call("GET", f"/statistics?from={today - timedelta(days=365)}", owner)
    assert year.status_code == 200, year.text


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ("from=yesterday&to=2026-13-01", {"from", "to"}),
        ("from=2001-01-02&to=2001-01-01", {"from"}),
        ("from=2001-01-01&to=2026-01-01", {"from"}),
        ("kind=phone", {"kind"}),
        ("venue=0", {"venue"}),
        (f"to={date.max}", None),
        (f"to={date.min}", None),
    ],
)
async def test_refused_parameters(
    api: Harness, owner: Headers, query: str, fields: set[str] | None
):
    answer = await api.call("GET", f"/statistics?{query}", owner)
    assert answer.status_code == (400 if fields else 200), answer.text
    assert set(answer.json().get("fields", ())) == fields if fields else answer.json() == []


@pytest.mark.parametrize(
    ("accept", "as_csv"),
    [
        ("text/csv", True),
        ("text/csv; q=0.9, application/json", True),
        ("application/json, text/csv", False),
        ("*/*", False),
        ("text/html", False),
    ],
)
async def test_as_a_sheet(
    api: Harness, owner: Headers, bodies: Bodies, today: date, accept: str, as_csv: bool
):
    await fill(api, owner, bodies, today)
    answer = await api.call("GET", "/statistics", owner | {"accept": accept})
    assert answer.headers["content-type"].startswith("text/csv") == as_csv
    if as_csv:
        header, *rows = csv.reader(io.StringIO(answer.text))
        plain = (await api.call("GET", "/statistics", owner)).json()
        assert header == list(plain[0])
        assert len(rows) == len(plain)
        # No cell is a formula.
        assert {row[header.index("venue")] for row in rows} == {"'=1+1"}
