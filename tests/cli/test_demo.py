"""The demo: its catalog on any day, its figures, and what its summary says."""

import io
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest
from rich.console import Console

from catalog.fields import Faults
from catalog.load import read_document
from engine.cli.demo.summary import (
    DemoResults,
    EngineFigures,
    print_summary,
    quantile,
)
from engine.cli.demo.walk import ZONE, DemoCampaign, demo_document
from engine.cli.output import REASON_WORDS
from rules.model import BeaconSnapshot, CampaignSnapshot, Reason, VenueSnapshot, Zone
from rules.schedule import Schedule

AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC).timestamp()  # a Friday
VENUE = VenueSnapshot(id=1, name="Library", company_id=1, active=True, time_zone="Europe/Madrid")


def campaign(**changes: Any) -> CampaignSnapshot:
    fields: dict[str, Any] = {
        "id": 1,
        "name": "Welcome",
        "active": True,
        "title": "t",
        "push": "p",
        "format": "html",
        "delay": 60,
        "start": datetime(2026, 11, 1, tzinfo=UTC),
        "end": datetime(2026, 11, 30, tzinfo=UTC),
        "start_minute": 0,
        "end_minute": 1440,
        "weekdays": 0b1111111,
        "time_zone": "Europe/Madrid",
    }
    return CampaignSnapshot(**fields | changes)


def beacon(name: str, *, active: bool = True, reach: Zone = Zone.NEAR) -> BeaconSnapshot:
    return BeaconSnapshot(
        id=1, name=name, uuid="u", major=1, minor=1, active=active, reach=reach, venue=VENUE
    )


def test_every_reason_has_a_text() -> None:
    assert set(REASON_WORDS) == set(Reason)


def results() -> DemoResults:
    return DemoResults(
        campaigns=[
            DemoCampaign(campaign(), [beacon("Gates")]),
            DemoCampaign(campaign(id=2, name="Loans", format="connector"), [beacon("Till")]),
            DemoCampaign(campaign(id=3, name="Old", end=datetime(2026, 11, 12, tzinfo=UTC)), []),
        ],
        figures=EngineFigures({"too_far": 1200, "granted": 9}, 40, 9, [(0.01, 9.0), (2.5, 14.0)]),
        sends={1: 8, 2: 1},
        phones={1: set("abcdef"), 2: {"a"}},
        first={1: b"{}", 2: b'{"id":"x","device":{"udid":"a [b]"}}'},
        at=AT,
        walked=794.8,
        took=50.2,
        walkers=6,
        arrivals=12,
        beacons=24,
        recorded=(1100, 9),
    )


def printed(console: Console, stream: io.StringIO) -> list[str]:
    print_summary(console, results())
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_the_summary_says_what_fired_what_did_not_and_why() -> None:
    stream = io.StringIO()
    lines = printed(Console(file=stream, width=110), stream)
    text = "\n".join(lines)
    assert "1,197 real readings, taken by 6 phones in 13 minutes of walking\n" in text
    assert " 1,200  too_far                  farther than the" in text
    assert "     8  Welcome                  html, to 6 phones" in text
    assert "connector, to 1 phone; asked of its service" in text
    assert "     0  Old                      its campaign is over" in text
    assert "9 notifications; 40 times a campaign was held back by its delay." in text
    assert "From detection to notification: p50 8 ms, p99 2" in text
    assert "SQL has counted 1,100 detections at active places and 9 notifications." in text
    assert lines[lines.index("{") : lines.index("}") + 1] == [
        "{",
        '  "id": "x",',
        '  "device": {"udid":"a [b]"}',
        "}",
    ]


@pytest.mark.parametrize(
    ("q", "seconds"), [(0.0, 0.0), (0.25, 0.5), (0.5, 1.0), (0.75, 2.0), (0.9, 3.0), (1.0, 3.0)]
)
def test_a_quantile_lies_within_its_bucket(q: float, seconds: float) -> None:
    buckets = [(1.0, 4.0), (1.5, 4.0), (2.5, 7.0), (3.0, 7.0), (inf, 8.0)]
    found = quantile(buckets, q)
    assert found == pytest.approx(seconds, abs=0.2)


CLOSED = {
    "Film season": Reason.ENDED,
    "Screening tonight": Reason.OUTSIDE_HOURS,
    "Reading week": Reason.NOT_STARTED,
    "Guided tour": Reason.WRONG_WEEKDAY,
    "Renovation notice": Reason.INACTIVE,
}
NOWS = [
    datetime(2026, 11, 20, 23, 59, 30, tzinfo=ZONE),
    datetime(2026, 11, 22, 0, 0, tzinfo=ZONE),
    datetime(2026, 3, 29, 1, 59, tzinfo=ZONE),
    datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZONE),
    datetime(2028, 2, 29, 12, 0, tzinfo=ZoneInfo("Asia/Tokyo")),
]


def compiled_campaigns(document: dict[str, Any]) -> list[CampaignSnapshot]:
    faults = Faults()
    companies = read_document(orjson.dumps(document), faults)
    assert faults == []
    return [compiled(item.values) for item in companies[0].inside["venues"][0].inside["campaigns"]]


def compiled(values: dict[str, Any]) -> CampaignSnapshot:
    days = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
    return CampaignSnapshot(
        id=1,
        name=values["name"],
        active=values["active"],
        title=values["title"],
        push=values["push"],
        format=values["format"],
        delay=0,
        start=values["start"],
        end=values["end"],
        start_minute=values.get("start_minute", 0),
        end_minute=values.get("end_minute", 1440),
        weekdays=sum(values.get(day, True) << bit for bit, day in enumerate(days)),
        time_zone="Europe/Madrid",
    )


@pytest.mark.parametrize("now", NOWS, ids=str)
def test_campaigns_that_must_not_fire_are_closed_during_the_demo(now: datetime) -> None:
    for campaign in compiled_campaigns(demo_document(now)):
        schedule = Schedule(campaign)
        for later in (timedelta(0), timedelta(minutes=2)):
            verdict = schedule.verdict((now + later).timestamp())
            assert verdict.reason == CLOSED.get(campaign.name), campaign.name
