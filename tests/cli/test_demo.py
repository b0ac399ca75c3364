"""The demo's catalog, on any day."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import orjson
import pytest

from catalog.fields import Faults
from catalog.load import read_document
from engine.cli.demo.walk import ZONE, demo_document
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


def compiled_campaigns(document: dict[str, Any]) -> list[CampaignSnapshot]:
    faults = Faults()
    companies = read_document(orjson.dumps(document), faults)
    assert faults == []
    return [compiled(item.values) for item in companies[0] if item.kind == "campaigns"]


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
