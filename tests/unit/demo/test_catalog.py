"""The demo's catalog: whatever the day and the hour, what must not fire is closed."""

import csv
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest

from catalog.fields.base import Faults
from catalog.load.document import read_document
from engine.cli.demo.catalog import ZONE, demo_document
from engine.cli.demo.readings import load_readings
from rules.model import CampaignSnapshot, Reason
from rules.schedule import Schedule

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


def campaigns(document: dict[str, Any]) -> list[CampaignSnapshot]:
    faults = Faults()
    companies = read_document(orjson.dumps(document), faults)
    assert faults == []
    return [compiled(item.values) for item in companies[0].venues[0].campaigns]


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
    for campaign in campaigns(demo_document(now)):
        schedule = Schedule(campaign)
        for later in (timedelta(0), timedelta(minutes=2)):
            verdict = schedule.verdict((now + later).timestamp())
            assert verdict.reason == CLOSED.get(campaign.name), campaign.name


def test_the_beacons_are_those_of_the_data() -> None:
    document = demo_document(NOWS[0])
    (venue,) = document["companies"][0]["venues"]
    written = files("engine.cli.demo").joinpath("data/beacons.csv").read_text("utf-8")
    recorded = {
        int(row["beacon"]): (round(float(row["x"])), round(float(row["y"])))
        for row in csv.DictReader(written.splitlines())
    }
    assert {b["minor"]: (b["x"], b["y"]) for b in venue["beacons"]} == recorded


def test_the_readings_are_all_there_in_order() -> None:
    readings = load_readings(demo_document(NOWS[0]))
    assert (len(readings.items), readings.phones, readings.beacons) == (25_419, 6, 24)
    times = [item.recorded or 0.0 for item in readings.items]
    assert times == sorted(times)
    assert readings.seconds == 794.847
