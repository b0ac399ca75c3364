from datetime import datetime, timedelta, timezone

import pytest

from engine.cli.replay.catalogs import campaign_clock, venue_clock
from engine.cli.replay.tally import LocalHour, Tally, TallyKey, local_hour
from engine.trigger.beacon_cache import IndexedBeacon
from rules.decision import decide
from rules.local_time import zone_clock
from rules.model import CampaignSnapshot, Reason, Zone
from tests.unit.rules.records import beacon, campaign, epoch, venue

PARIS = "Europe/Paris"
MORNING = epoch("2026-11-20T09:10:00+01:00")


def wall(text: str) -> int:
    return int(epoch(f"{text}:00+00:00"))


def tallied(
    made: IndexedBeacon | None,
    *detections: tuple[float, Zone],
    held: dict[int, float] | None = None,
) -> Tally:
    tally = Tally()
    target = None if made is None else made.target
    for at, zone in detections:
        decision = decide(target, zone, at, at, 300.0, held or {})
        tally.cell(made, decision, at // 900).count += 1
    tally.fold()
    return tally


def indexed(*campaigns: CampaignSnapshot) -> IndexedBeacon:
    return IndexedBeacon(beacon(venue=venue(time_zone=PARIS)), campaigns, None)


def test_reasons_are_counted_by_campaign_and_hour_of_the_venue() -> None:
    open_ = campaign(id=1, time_zone=PARIS)
    held = campaign(id=2, delay=3600, time_zone=PARIS)
    closed = campaign(id=3, start_minute=600, end_minute=660, time_zone=PARIS)
    lonely = campaign(id=4, format="connector", content=None, time_zone=PARIS)
    made = indexed(open_, held, closed, lonely)
    tally = tallied(made, *[(MORNING, Zone.NEAR)] * 3, held={2: MORNING - 60})
    nine = LocalHour(wall("2026-11-20T09:00"), 3600)
    assert tally.counts == {
        TallyKey(1, None, nine, Reason.GRANTED): 3,
        TallyKey(2, None, nine, Reason.THROTTLED): 3,
        TallyKey(3, None, nine, Reason.OUTSIDE_HOURS): 3,
        TallyKey(4, None, nine, Reason.NO_CONNECTOR): 3,
    }
    assert tally.detections == {Reason.GRANTED: 3}


def test_a_reason_of_the_detection_is_that_of_every_campaign() -> None:
    made = indexed(campaign(id=1, time_zone=PARIS), campaign(id=2, active=False))
    tally = tallied(made, (MORNING, Zone.FAR))
    hours = {LocalHour(wall("2026-11-20T09:00"), 3600), LocalHour(wall("2026-11-20T08:00"), 0)}
    assert {key.reason for key in tally.counts} == {Reason.TOO_FAR}
    # The second one goes by the offset of its own start.
    assert {key.hour for key in tally.counts} == hours
    assert tally.detections == {Reason.TOO_FAR: 1}


def test_detections_without_a_campaign_are_counted_at_their_venue_or_at_none() -> None:
    assert tallied(indexed(), (MORNING, Zone.NEAR)).counts == {
        TallyKey(None, 1, LocalHour(wall("2026-11-20T09:00"), 3600), Reason.NO_CAMPAIGN): 1
    }
    assert tallied(None, (MORNING, Zone.NEAR)).counts == {
        TallyKey(None, None, LocalHour(wall("2026-11-20T08:00"), 0), Reason.UNKNOWN_BEACON): 1
    }


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2026-10-25T02:59:00+02:00", LocalHour(wall("2026-10-25T02:00"), 7200)),
        ("2026-10-25T02:01:00+01:00", LocalHour(wall("2026-10-25T02:00"), 3600)),
        ("2026-03-29T03:00:00+02:00", LocalHour(wall("2026-03-29T03:00"), 7200)),
        ("1969-12-31T23:30:00+01:00", LocalHour(wall("1969-12-31T23:00"), 3600)),
    ],
)
def test_an_hour_that_is_repeated_is_two(at: str, expected: LocalHour) -> None:
    assert local_hour(zone_clock(PARIS), int(epoch(at))) == expected


def test_the_clock_of_a_zone_of_three_quarters() -> None:
    clock = venue_clock(venue(time_zone="Asia/Kathmandu"))
    at = int(epoch("2026-11-20T10:00:00+05:45"))
    assert local_hour(clock, at) == LocalHour(wall("2026-11-20T10:00"), 20_700)
    assert local_hour(clock, at - 900) == LocalHour(wall("2026-11-20T09:00"), 20_700)


def test_a_clock_that_is_not_known_is_utc() -> None:
    there = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=3)))
    assert campaign_clock(campaign(start=there)).stretch_at(0).offset == 10_800
    assert campaign_clock(campaign(start=there, time_zone="No/Where")).stretch_at(0).offset == 0
    assert venue_clock(venue()).stretch_at(0).offset == 0
