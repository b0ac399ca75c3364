"""`proximity statistics`: the requested lines, as a table and as CSV."""

import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from catalog.database import Database
from catalog.models import Company, Statistic, VisitStatistic
from catalog.statistics import StatisticLine
from tests.catalog.records import NOON, Records
from tests.servers.proximity import Rig

TODAY = date(2026, 11, 20)
HEADER = ",".join(StatisticLine._fields)


@pytest.fixture
async def database(database: Database) -> Database:
    """Two companies with a venue each; their figures of some days, and visits."""
    records = Records()
    visits = [
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
        for name in ("alpha", "beta"):
            venue = records.venue(Company(name=name, create_on=NOON), name=f"{name} hall")
            session.add(records.beacon(venue, name="door"))
            await session.flush()
            for age in range(3):
                of = {"day": TODAY - timedelta(days=age), "venue_id": venue.id, "ref": venue.id}
                figures = {"detections": 1000 + age, "devices": 100 + age, "notifications": 10}
                session.add_all(
                    Statistic(kind=kind, **of, **figures) for kind in ("venue", "beacon")
                )
        for age, *values in visits:
            row: dict[str, Any] = dict(zip(names, values, strict=True))
            day = TODAY - timedelta(days=age)
            session.add(VisitStatistic(**row, day=day, venue_id=row["ref"]))
    return database


@pytest.fixture
def proximity(rig: Rig, database: Database, database_url: str) -> Rig:
    rig.settings["DATABASE_URL"] = database_url
    return rig


def test_the_columns_of_a_line(proximity: Rig, tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    options = ["--from", "2026-11-18", "--to", "2026-11-18", "--company", "beta"]
    done = proximity("statistics", *options, "--csv", str(file))
    assert (done.returncode, done.stdout) == (0, f"2 lines written to {file}\n")
    assert file.read_text().splitlines() == [
        HEADER,
        "2026-11-18,beta,2,beta hall,venue,2,beta hall,1002,102,10,0",
        "2026-11-18,beta,2,beta hall,beacon,2,door,1002,102,10,0",
    ]


def test_visits_in_a_terminal(proximity: Rig) -> None:
    days = ["--visits", "--from", "2026-11-14", "--to", "2026-11-20"]
    header, first, *_ = proximity("statistics", *days).stdout.splitlines()
    assert header.split("  ")[-1].strip() == "240+ min"
    assert first.split()[-11:-8] == ["18", "0", "5.3"]
    written = proximity("statistics", *days, "--json").stdout
    lines = list(map(json.loads, written.splitlines()))
    assert [(each["kind"], each["visits"]) for each in lines] == [
        ("venue", 18),
        ("beacon", 2),
        ("venue", 1),
    ]
    assert lines[0]["lengths"]["15"] == 2
    assert proximity("statistics", "--to", "0001-01-03").stdout.endswith("to 0001-01-03\n")
    nothing = proximity("statistics", *days, "--kind", "campaign")
    assert nothing.stdout == "no visits from 2026-11-14 to 2026-11-20\n"
    assert proximity("statistics", "--visits", "--csv", "-").returncode == 2
