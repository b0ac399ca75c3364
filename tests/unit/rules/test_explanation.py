"""What each check says, and when the next moment comes."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from rules.compared import duration_text
from rules.decision import Target
from rules.explanation import (
    ExplainedCampaign,
    Explanation,
    HeldClaim,
    Question,
    awake,
    explain,
    explain_campaign,
)
from rules.model import Reason, Zone
from tests.unit.rules.records import beacon, campaign, epoch, venue

LATE_CHECKS = (
    Reason.NOT_STARTED,
    Reason.ENDED,
    Reason.WRONG_WEEKDAY,
    Reason.OUTSIDE_HOURS,
    Reason.THROTTLED,
    Reason.GRANTED,
)
FRIDAY = epoch("2026-11-20T22:41:00+01:00")
PARIS = {"time_zone": "Europe/Paris"}


def asked(
    at: float = FRIDAY,
    zone: Zone = Zone.NEAR,
    claims: Mapping[int, HeldClaim] | None = None,
    decided_at: float | None = None,
) -> Question:
    return Question(zone, at, at if decided_at is None else decided_at, 300.0, claims or {})


def at_beacon(question: Question | None = None, /, **fields: Any) -> Explanation:
    target = Target.of_beacon(beacon(), [campaign(**PARIS | fields)], has_connector=False)
    return explain(target, question or asked())


def only(explanation: Explanation) -> ExplainedCampaign:
    (found,) = explanation.campaigns
    return found


def compared(explanation: Explanation, check: Reason) -> str:
    """What the check says, and whether it failed."""
    checks = (*explanation.checks, *(only(explanation).checks if explanation.campaigns else ()))
    (found,) = [each for each in checks if each.check is check]
    return f"{'ok' if found.passed else 'NO'} {found.compared.found} | {found.compared.needed}"


def target(**fields: Any) -> Target:
    return Target.of_beacon(beacon(**fields), [campaign()])


CASES = {
    Reason.UNKNOWN_BEACON: (explain(None, asked()), "unknown | a beacon of the catalog"),
    Reason.INACTIVE_VENUE: (
        explain(target(venue=venue(active=False)), asked()),
        "inactive | active",
    ),
    Reason.INACTIVE_BEACON: (explain(target(active=False), asked()), "inactive | active"),
    Reason.NO_CAMPAIGN: (
        explain(Target.of_beacon(beacon(), []), asked()),
        "no campaigns | a campaign that targets the beacon",
    ),
    Reason.UNKNOWN_PROXIMITY: (
        at_beacon(asked(zone=Zone.UNKNOWN)),
        "unknown | immediate, near or far",
    ),
    Reason.TOO_FAR: (at_beacon(asked(zone=Zone.FAR)), "far | near or nearer"),
    Reason.STALE: (
        at_beacon(asked(decided_at=FRIDAY + 422.5)),
        "7 min 3 s old | at most 5 min",
    ),
    Reason.FUTURE: (
        at_beacon(asked(decided_at=FRIDAY - 7200)),
        "2 h ahead | at most 5 min",
    ),
    Reason.INACTIVE: (at_beacon(active=False), "inactive | active"),
    Reason.NOT_STARTED: (
        at_beacon(start=datetime.fromisoformat("2026-12-01T00:00:00+01:00")),
        "2026-11-20T22:41:00+0100 | from 2026-12-01T00:00:00+0100 on",
    ),
    Reason.ENDED: (
        at_beacon(end=datetime.fromisoformat("2026-11-19T00:00:00+01:00")),
        "2026-11-20T22:41:00+0100 | until 2026-11-19T23:59:59+0100",
    ),
    Reason.WRONG_WEEKDAY: (at_beacon(weekdays=0b1000001), "Friday | Monday, Sunday"),
    Reason.OUTSIDE_HOURS: (
        at_beacon(start_minute=540, end_minute=1140),
        "Friday 22:41 in Europe/Paris | 09:00 to 19:00",
    ),
    Reason.NO_CONNECTOR: (
        at_beacon(format="connector"),
        "none set up | a connector of the company",
    ),
    Reason.THROTTLED: (
        at_beacon(asked(claims={1: HeldClaim("x", FRIDAY - 2788)}), delay=3600),
        "claimed at 2026-11-20T21:54:32+0100, 13 min 32 s left | at least 1 h between two sends",
    ),
}


@pytest.mark.parametrize("reason", CASES)
def test_each_check_says_what_it_compared(reason: Reason) -> None:
    explanation, told = CASES[reason]
    assert explanation.reason is reason
    assert compared(explanation, reason) == f"NO {told}"


def test_every_check_has_a_case() -> None:
    assert set(CASES) == set(Reason) - {Reason.GRANTED}


def test_the_chain_is_whole_behind_the_first_that_fails() -> None:
    explanation = at_beacon(
        asked(zone=Zone.FAR, decided_at=FRIDAY + 301), active=False, weekdays=1, start_minute=60
    )
    failed = [each.check for each in (*explanation.checks, *only(explanation).checks)]
    assert failed == [each for each in Reason if each not in (Reason.NO_CONNECTOR, Reason.GRANTED)]
    assert only(explanation).reason is Reason.TOO_FAR
    assert only(explanation).blocked_by == (Reason.TOO_FAR, Reason.INACTIVE)


def test_a_window_over_midnight_has_the_day_on_which_it_opened() -> None:
    saturday = epoch("2026-11-21T01:10:00+01:00")
    explanation = at_beacon(asked(saturday), start_minute=1320, end_minute=120, weekdays=0b0100000)
    assert compared(explanation, Reason.WRONG_WEEKDAY) == (
        "NO Friday (the window opened the day before) | Saturday"
    )
    assert compared(explanation, Reason.OUTSIDE_HOURS) == (
        "ok Saturday 01:10 in Europe/Paris | 22:00 to 02:00"
    )
    assert only(explanation).next_at == epoch("2026-11-21T22:00:00+01:00")


def test_without_a_zone_the_offset_of_the_start_is_shown() -> None:
    start = datetime.fromisoformat("2026-01-01T00:00:00-03:30")
    explanation = at_beacon(time_zone=None, start=start, start_minute=0, end_minute=60)
    assert compared(explanation, Reason.OUTSIDE_HOURS) == (
        "NO Friday 18:11 at -0330 | 00:00 to 01:00"
    )


def test_a_claim_that_is_over_and_one_without_a_delay() -> None:
    claims = {1: HeldClaim("x", FRIDAY - 3600)}
    assert compared(at_beacon(asked(claims=claims), delay=3600), Reason.THROTTLED) == (
        "ok claimed at 2026-11-20T21:41:00+0100, that is over | at least 1 h between two sends"
    )
    assert compared(at_beacon(asked(claims=claims)), Reason.THROTTLED) == (
        "ok no cache delay | no cache delay"
    )


@pytest.mark.parametrize(
    ("fields", "claimed", "at"),
    [
        ({}, None, "2026-11-20T22:41:00+01:00"),
        ({"start_minute": 540, "end_minute": 1140}, None, "2026-11-21T09:00:00+01:00"),
        ({"weekdays": 0b0000001}, None, "2026-11-23T00:00:00+01:00"),
        ({"delay": 3600}, FRIDAY - 99.5, "2026-11-20T23:39:21+01:00"),
        ({"delay": 86_400, "start_minute": 540}, FRIDAY, "2026-11-21T22:41:00+01:00"),
        ({"delay": 86_400, "end_minute": 600}, FRIDAY, "2026-11-22T00:00:00+01:00"),
        ({"weekdays": 0}, None, None),
        ({"delay": 86_400 * 60}, FRIDAY, None),
    ],
)
def test_the_next_moment(fields: dict[str, Any], claimed: float | None, at: str | None) -> None:
    claims = {} if claimed is None else {1: HeldClaim("x", claimed)}
    found = only(at_beacon(asked(claims=claims), **fields))
    assert found.next_at == (None if at is None else epoch(at))
    assert found.blocked_by == ()


def test_a_stale_detection_asks_from_the_moment_of_its_decision() -> None:
    assert only(at_beacon(asked(decided_at=FRIDAY + 3600))).next_at == FRIDAY + 3600


def test_a_campaign_far_ahead_sleeps_until_then() -> None:
    start = datetime.fromisoformat("2027-01-01T00:00:00+01:00")
    explanation = at_beacon(start=start, end=start, asleep=True)
    assert only(explanation).next_at == start.timestamp()
    open_now = Target.of_beacon(beacon(), [campaign(asleep=True)])
    assert explain(open_now, asked()).reason is Reason.INACTIVE
    assert only(explain(open_now, asked())).checks[-2].compared.needed == "its content"
    assert explain(awake(open_now), asked()).reason is Reason.GRANTED


def test_a_campaign_that_is_not_aimed_at_the_beacon() -> None:
    explanation = explain_campaign(target(), campaign(id=7), asked())
    assert explanation.reason is only(explanation).reason is Reason.NO_CAMPAIGN
    assert only(explanation).blocked_by == (Reason.NO_CAMPAIGN,)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"),
        (0.2, "1 s"),
        (60, "1 min"),
        (3599, "59 min 59 s"),
        (86_400, "1 day"),
        (90_061, "1 day 1 h"),
        (-3, "0 s"),
    ],
)
def test_durations(seconds: float, told: str) -> None:
    assert duration_text(seconds) == told


YEAR_1, YEAR_9999 = -62_135_596_800.0, 253_402_300_799.0


@pytest.mark.parametrize("at", [YEAR_1, 0.0, YEAR_9999])
@pytest.mark.parametrize("decided_at", [YEAR_1, YEAR_9999])
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/New_York", None])
def test_at_the_edges_of_the_calendar(at: float, decided_at: float, zone: str | None) -> None:
    """Whatever the dates are, each check has its words, and the search for a moment ends."""
    claims = {campaign().id: HeldClaim("owner", YEAR_9999)}
    behind, ahead = timezone(timedelta(hours=-12)), timezone(timedelta(hours=14))
    for start in (datetime(1, 1, 1, tzinfo=ahead), datetime(2026, 1, 1, tzinfo=UTC)):
        for end in (datetime(9999, 12, 31, tzinfo=behind), datetime(2026, 12, 1, tzinfo=UTC)):
            fields = {"start": start, "end": end, "time_zone": zone, "start_minute": 1320}
            question = asked(at, claims=claims, decided_at=decided_at)
            explained = only(at_beacon(question, **fields, end_minute=120, delay=3600))
            assert explained.reason in (Reason.STALE, Reason.FUTURE, *LATE_CHECKS)
            assert all(each.compared.found for each in explained.checks)
