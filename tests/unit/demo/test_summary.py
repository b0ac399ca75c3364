import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from engine.cli.demo.figures import EngineFigures
from engine.cli.demo.reasons import WORDS, DemoCampaign, silence_reason
from engine.cli.demo.screen import DemoProgress, drawn, open_screen
from engine.cli.demo.summary import DemoResults, print_summary
from rules.model import BeaconSnapshot, CampaignSnapshot, Reason, VenueSnapshot, Zone

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


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"active": False}, "it is switched off"),
        ({"start": datetime(2026, 11, 25, tzinfo=UTC)}, "it begins on 2026-11-25"),
        ({"end": datetime(2026, 11, 12, tzinfo=UTC)}, "it ended on 2026-11-12"),
        ({"weekdays": 0b0100001}, "it is Friday; runs on Mon, Sat"),
        (
            {"start_minute": 14 * 60, "end_minute": 1440},
            "it runs from 14:00 to 24:00; it is 13:00",
        ),
        ({}, "no phone came near enough to its beacons"),
    ],
)
def test_why_a_campaign_is_silent(changes: dict[str, Any], fault: str) -> None:
    assert silence_reason(DemoCampaign(campaign(**changes), [beacon("Gates")]), AT) == fault


def test_why_a_campaign_is_silent_by_its_beacons() -> None:
    gates, desk = beacon("Gates", active=False), beacon("Desk", active=False)
    assert silence_reason(DemoCampaign(campaign(), []), AT) == "it is aimed at no beacon"
    assert (
        silence_reason(DemoCampaign(campaign(), [gates]), AT)
        == "its only beacon (Gates) is switched off"
    )
    both = silence_reason(DemoCampaign(campaign(), [gates, desk]), AT)
    assert both == "all its beacons (Gates, Desk) are switched off"
    close = silence_reason(
        DemoCampaign(campaign(), [gates, beacon("Till", reach=Zone.IMMEDIATE)]), AT
    )
    assert close == "no phone came immediate enough to its beacons"


def test_every_reason_has_a_text() -> None:
    assert set(WORDS) == set(Reason)


def results() -> DemoResults:
    return DemoResults(
        campaigns=[
            DemoCampaign(campaign(), [beacon("Gates")]),
            DemoCampaign(campaign(id=2, name="Loans", format="connector"), [beacon("Till")]),
            DemoCampaign(campaign(id=3, name="Old", end=datetime(2026, 11, 12, tzinfo=UTC)), []),
        ],
        figures=EngineFigures({"too_far": 1200, "granted": 9}, 40, [(0.01, 9.0), (0.025, 9.0)]),
        sends={1: 8, 2: 1},
        phones={1: 6, 2: 1},
        first={1: b"{}", 2: b'{"id":"x","device":{"udid":"a [b]"}}'},
        at=AT,
        walked=794.8,
        took=50.2,
        walkers=6,
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
    assert "1,209 real readings, taken by 6 phones in 13 minutes of walking\n" in text
    assert " 1,200  too_far                  farther than the" in text
    assert "     8  Welcome                  html, to 6 phones" in text
    assert "connector, to 1 phone; asked of its service" in text
    assert "     0  Old                      it ended on 2026-11-12" in text
    assert "9 notifications; 40 times a campaign was held back by its delay." in text
    assert "From detection to notification: p50 5 ms, p99 10 ms." in text
    assert "SQL has counted 1,100 detections of active beacons and 9 notifications." in text
    assert lines[lines.index("{") : lines.index("}") + 1] == [
        "{",
        '  "id": "x",',
        '  "device": {"udid":"a [b]"}',
        "}",
    ]


def test_without_a_terminal_a_line_now_and_then() -> None:
    stream = io.StringIO()
    with open_screen(Console(file=stream, width=80)) as screen:
        for tenth in range(121):
            seconds = tenth / 10
            screen.show(DemoProgress(seconds, tenth, 200, EngineFigures(), {}))
    lines = stream.getvalue().splitlines()
    assert [line[:5] for line in lines] == ["  5 s", " 10 s"]
    assert "no notification yet" in lines[0]


def test_the_live_table_shows_reasons_and_campaigns() -> None:
    stream = io.StringIO()
    figures = EngineFigures({"too_far": 1200, "granted": 9}, 40, [(0.01, 9.0)])
    Console(file=stream, width=100).print(
        drawn(DemoProgress(3.0, 1210, 25_419, figures, {"Loans": 4}))
    )
    shown = stream.getvalue()
    for part in ("1,210 of 25,419", "too_far", "1,200", "Loans", "4", "p99"):
        assert part in shown
