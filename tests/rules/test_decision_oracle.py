from collections import Counter
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rules.decision import UNKNOWN, Target, decide
from rules.model import CampaignSnapshot, Decision, FiresOn, Place, PlaceKind, Reason, Zone
from tests.rules import schedule_oracle
from tests.rules.campaigns import DAY, anchors, campaigns, instants, one_of_each, zones
from tests.rules.records import beacon, geofence, tag, venue

MAX_AGE = 300.0
ORDER = [
    "unknown_beacon",
    "unknown_geofence",
    "unknown_tag",
    "unknown_application",
    "outside",
    "inaccurate",
    "inactive_venue",
    "inactive_beacon",
    "inactive_geofence",
    "inactive_tag",
    "no_campaign",
    "unknown_proximity",
    "too_far",
    "stale",
    "future",
    "inactive",
    "not_started",
    "ended",
    "wrong_weekday",
    "outside_hours",
    "no_connector",
    "not_entered",
    "quiet_hours",
    "throttled",
    "capped",
    "granted",
]


@dataclass(frozen=True)
class Case:
    """The input of a decision."""

    known: bool
    venue_active: bool
    active: bool
    reach: Zone
    campaigns: tuple[CampaignSnapshot, ...]
    zone: Zone
    t: float
    now: float
    held: dict[int, float]
    has_connector: bool
    kind: PlaceKind = "beacon"

    @property
    def check(self) -> str:
        """The kind as the names of the checks have it."""
        return "tag" if self.kind in ("nfc", "qrcode") else self.kind

    def target(self) -> Target | None:
        if not self.known:
            return None
        fields = {"active": self.active, "venue": venue(active=self.venue_active)}
        place: Place
        if self.kind == "beacon":
            place = beacon(reach=self.reach, **fields)
        elif self.kind == "geofence":
            place = geofence(**fields)
        else:
            place = tag(kind=self.kind, **fields)
        return Target(place, self.campaigns, self.has_connector)

    def decision(self) -> Decision:
        """The decision of the rules."""
        target = self.target()
        if target is None:
            return UNKNOWN[self.kind]
        return decide(target, self.zone, self.t, self.now, MAX_AGE, self.held)


MOSTLY = (True,) * 9 + (False,)
mostly = st.sampled_from(MOSTLY)
past = st.sampled_from((-30.0, 0.0, 0.0, 0.5, 30.0, float(DAY)))
states = one_of_each(MOSTLY, MOSTLY, MOSTLY)
rest = one_of_each(
    (0.0, 0.0, 1.5, -1.5, 299.0, 300.0, 301.0, -300.0, -300.5),
    (Zone.FAR, Zone.NEAR, Zone.IMMEDIATE),
    (Zone.IMMEDIATE, Zone.NEAR, *Zone),
    (False, True),
    ("beacon", "beacon", "geofence", "nfc", "qrcode"),
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    local = draw(zones)
    near = draw(anchors(local))
    numbers = range(draw(st.integers(0, 4)))
    chosen = tuple(draw(campaigns(local, near, number)) for number in numbers)
    t = draw(instants(near, chosen[0])) if chosen else float(near)
    held = {c.id: t - c.delay + draw(past) for c in chosen if draw(mostly)}
    age, reach, zone, has_connector, kind = draw(rest)
    known, venue_active, active = draw(states)
    return Case(
        known, venue_active, active, reach, chosen, zone, t, t + age, held, has_connector, kind
    )


def refusal(case: Case) -> str | None:
    """The check that refuses the detection before any campaign is checked."""
    triggers = {
        Zone.FAR: ("far", "near", "immediate"),
        Zone.NEAR: ("near", "immediate"),
        Zone.IMMEDIATE: ("immediate",),
    }
    failed = {
        f"unknown_{case.check}": not case.known,
        "inactive_venue": not case.venue_active,
        f"inactive_{case.check}": not case.active,
        "no_campaign": len(case.campaigns) == 0,
        "unknown_proximity": case.kind == "beacon" and case.zone.name == "UNKNOWN",
        "too_far": case.kind == "beacon" and case.zone.name.lower() not in triggers[case.reach],
        "stale": case.now - case.t > MAX_AGE,
        "future": case.t - case.now > MAX_AGE,
    }
    return next((check for check in ORDER if failed.get(check)), None)


def fate(campaign: CampaignSnapshot, case: Case) -> str:
    """What becomes of one campaign of a detection that reached it."""
    closed = schedule_oracle.verdict(campaign, case.t)
    if closed is not None:
        return closed.value
    if campaign.format == "connector" and not case.has_connector:
        return "no_connector"
    if campaign.on != "detection":
        return "not_entered"
    sent = case.held.get(campaign.id)
    if campaign.delay and sent is not None and case.t - sent < campaign.delay:
        return "throttled"
    return "granted"


def made(decision: Decision) -> tuple[str, dict[str, int], list[int]]:
    counts = {reason.value: count for reason, count in decision.tally.outcomes}
    return decision.reason.value, counts, [campaign.id for campaign in decision.granted]


@settings(max_examples=800)
@given(cases())
def test_the_decision_is_that_of_the_oracle(case: Case) -> None:
    decision = case.decision()
    refused = refusal(case)
    if refused is not None:
        assert made(decision) == (refused, {refused: 1}, [])
        assert dict(decision.by_campaign) == {}
        return
    fates = {campaign.id: fate(campaign, case) for campaign in case.campaigns}
    counts = Counter(fates.values())
    granted = [number for number, what in fates.items() if what == "granted"]
    furthest = max(fates.values(), key=ORDER.index)
    counts.pop("granted", None)
    assert made(decision) == (furthest, counts, granted)
    assert dict(decision.by_campaign) == fates


@given(cases())
def test_a_moment_of_a_visit_fires_the_campaigns_of_that_moment_alone(case: Case) -> None:
    target = case.target()
    if target is None:
        return
    moments: list[tuple[FiresOn, int]] = [("enter", 0), ("dwell", 5), ("dwell", 6), ("exit", 0)]
    for moment, minutes in moments:
        there = target.at_moment(moment, minutes)
        of_it = [
            replace(each, on="detection", dwell_minutes=None)
            for each in case.campaigns
            if each.on == moment and each.dwell_minutes in (None, minutes)
        ]
        zone = Zone.UNKNOWN  # a visit has begun, so it does not matter
        found = decide(there, zone, case.t, case.now, MAX_AGE, case.held)
        alone = Target(target.place, of_it, case.has_connector)
        expected = decide(alone, Zone.IMMEDIATE, case.t, case.now, MAX_AGE, case.held)
        assert [each.id for each in found.granted] == [each.id for each in expected.granted]


def test_the_order_is_that_of_the_contract() -> None:
    assert [reason.value for reason in Reason] == ORDER


@given(cases(), st.data())
def test_remembered_phases_never_change_an_answer(case: Case, data: st.DataObject) -> None:
    if not case.campaigns:
        return
    target = Target(beacon(), case.campaigns, case.has_connector)
    around = st.one_of([instants(int(case.t), campaign) for campaign in case.campaigns])
    moments = data.draw(st.lists(around | st.just(case.t), min_size=1, max_size=12))
    for t in moments:
        fresh = Target(beacon(), case.campaigns, case.has_connector)
        remembered = decide(target, Zone.NEAR, t, t, MAX_AGE, case.held)
        assert made(remembered) == made(decide(fresh, Zone.NEAR, t, t, MAX_AGE, case.held))
        phase = target.phase_at(t)
        assert phase.since <= t < phase.until
