"""`proximity statistics`: the requested lines, as a table and as CSV."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from catalog.database import Database, open_database
from catalog.models import Company, Statistic, VisitStatistic
from catalog.statistics import (
    StatisticFilter,
    StatisticLine,
    statistic_lines,
    visit_totals,
)
from tests.catalog.records import NOON, Records
from tests.cli.proximity import Proximity
from tests.servers.schema import make_schema

TODAY = date(2026, 11, 20)
HEADER = ",".join(StatisticLine._fields)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """Two companies with a venue each; figures of ten days, and of a venue that is gone."""
    await make_schema(database_url)
    opened = open_database(database_url)
    records = Records()
    companies = [Company(name=name, create_on=NOON) for name in ("alpha", "beta")]
    venues = [records.venue(company, name=f"{company.name} hall") for company in companies]
    beacons = [records.beacon(venue, name="door") for venue in venues]
    campaigns = [records.campaign(venue, name="offer") for venue in venues]
    async with opened.write.begin() as session:
        session.add_all([*beacons, *campaigns])
        await session.flush()
        for venue, beacon, campaign in zip(venues, beacons, campaigns, strict=True):
            for age in range(10):
                kinds = (("venue", venue.id), ("beacon", beacon.id), ("campaign", campaign.id))
                session.add_all(_figures(age, kind, ref, venue.id) for kind, ref in kinds)
        session.add(_figures(0, "venue", 99, 99))
    yield opened
    await opened.close()


def _figures(age: int, kind: str, ref: int, venue_id: int) -> Statistic:
    return Statistic(
        day=TODAY - timedelta(days=age),
        kind=kind,
        ref=ref,
        venue_id=venue_id,
        detections=1000 + age,
        devices=100 + age,
        notifications=10 + age,
    )


@pytest.fixture
def proximity(tmp_path: Path, database_url: str) -> Proximity:
    return Proximity(tmp_path, "127.0.0.1:1", "t.", PROXIMITY_DATABASE_URL=database_url)


@pytest.mark.parametrize(
    ("choice", "lines"),
    [
        (StatisticFilter(TODAY - timedelta(days=9), TODAY), 61),
        (StatisticFilter(TODAY - timedelta(days=1), TODAY, kind="beacon"), 4),
        (StatisticFilter(TODAY, TODAY, company="beta"), 3),
        (StatisticFilter(TODAY, TODAY, company="9" * 30), 0),
        (StatisticFilter(TODAY, TODAY, company="alpha", venue="2"), 0),
        (StatisticFilter(TODAY, TODAY, venue="1", kind="venue"), 1),
        (StatisticFilter(TODAY + timedelta(days=1), TODAY + timedelta(days=9)), 0),
    ],
)
async def test_which_lines(database: Database, choice: StatisticFilter, lines: int) -> None:
    async with database.read() as session:
        found = [line async for line in statistic_lines(session, choice)]
    assert len(found) == lines
    assert [(line.day, line.venue_id) for line in found] == sorted(
        (line.day, line.venue_id) for line in found
    )


on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@on_sqlite
@pytest.mark.usefixtures("database")
def test_the_columns_of_a_line(proximity: Proximity, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    options = ["--from", "2026-11-18", "--to", "2026-11-18", "--company", "beta"]
    done = proximity("statistics", *options, "--csv", str(file))
    assert (done.returncode, done.stdout) == (0, f"3 lines written to {file}\n")
    assert file.read_text().splitlines() == [
        HEADER,
        "2026-11-18,beta,2,beta hall,venue,2,beta hall,1002,102,12,0",
        "2026-11-18,beta,2,beta hall,beacon,2,door,1002,102,12,0",
        "2026-11-18,beta,2,beta hall,campaign,2,offer,1002,102,12,0",
    ]


NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAYS = StatisticFilter(TODAY - timedelta(days=6), TODAY)


@pytest.fixture
async def visited(database: Database) -> Database:
    """Visits to the venues 1 and 2, and to the beacon 1."""
    rows = [
        # age of the day, kind, ref, minutes, begun, ended, seconds
        (0, "venue", 1, 0, 5, 1, 30),
        (0, "venue", 1, 15, 0, 2, 2400),
        (1, "venue", 1, 0, 4, 2, 20),
        (5, "venue", 1, 0, 9, 3, 90),  # six exits of that day never came
        (0, "venue", 2, 0, 1, 2, 3),  # began before the company asked for presence
        (0, "beacon", 1, 0, 2, 0, 0),
        (7, "venue", 1, 0, 100, 0, 0),
    ]
    names = ("kind", "ref", "minutes", "begun", "ended", "seconds")
    async with database.write.begin() as session:
        for age, *values in rows:
            row: dict[str, Any] = dict(zip(names, values, strict=True))
            day = TODAY - timedelta(days=age)
            session.add(VisitStatistic(**row, day=day, venue_id=row["ref"]))
    return database


async def test_visits_with_their_lengths_and_those_that_go_on(visited: Database) -> None:
    async with visited.read() as session:
        found = await visit_totals(session, DAYS, now=NOW)
        of_beta = DAYS._replace(kind="venue", company_id=2)
        ours = await visit_totals(session, of_beta, now=NOW)
        named = await visit_totals(session, DAYS._replace(company="alpha"), now=NOW, limit=1)
    first, second, third = found
    assert first[:6] == ("alpha", 1, "alpha hall", "venue", 1, "alpha hall")
    assert (first.visits, first.ended, first.seconds, first.open) == (18, 8, 2540, 2 + 2)
    assert tuple(first.lengths.values()) == (6, 0, 0, 2, 0, 0, 0, 0)
    assert (second.kind, second.name, second.visits, second.open) == ("beacon", "door", 2, 2)
    assert (third.company, third.visits, third.ended, third.open) == ("beta", 1, 2, 0)
    assert (ours, named) == ([third], [first])


async def test_visits_in_a_terminal(visited: Database, proximity: Proximity) -> None:
    days = ["--visits", "--from", "2026-11-14", "--to", "2026-11-20"]
    done = proximity("statistics", *days)
    header, first, *_ = done.stdout.splitlines()
    assert header.split("  ")[-1].strip() == "240+ min"
    assert "5.3 min" in first
    written = proximity("statistics", *days, "--json").stdout
    lines = list(map(json.loads, written.splitlines()))
    assert [(each["kind"], each["visits"]) for each in lines] == [
        ("venue", 18),
        ("beacon", 2),
        ("venue", 1),
    ]
    assert lines[0]["lengths"]["15"] == 2
    nothing = proximity("statistics", *days, "--kind", "campaign")
    assert nothing.stdout == "no visits from 2026-11-14 to 2026-11-20\n"
    assert proximity("statistics", "--visits", "--csv", "-").returncode == 2
