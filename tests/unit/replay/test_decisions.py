"""One catalog's decisions, with claims in memory and the detections' own time."""

import math
from typing import Any

import msgspec
import pytest

from engine.cli.replay.catalogs import ReplayedCampaign, ReplayedCatalog, VenueNames
from engine.cli.replay.comparison import CatalogComparison
from engine.cli.replay.decisions import CatalogReplay
from engine.cli.replay.file_source import FileRecord
from engine.cli.replay.outcome import outcome_of
from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.kafka.messages import Detection, ReceivedDevice
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.grants import Grant
from rules.model import CampaignSnapshot, Reason, Zone
from tests.unit.rules.records import UUID, beacon, campaign, epoch

NOON = epoch("2026-11-20T12:00:00Z")
KEY = BeaconKey(UUID, 1, 2)
PLACE = VenueNames("Company", "Library")


def replay(*campaigns: CampaignSnapshot, known: bool = True, name: str = "x") -> CatalogReplay:
    named = {
        each.id: ReplayedCampaign(PLACE, each.name, each.id if known else None, each.format)
        for each in campaigns
    }
    made = {KEY: IndexedBeacon(beacon(), campaigns, None)}
    catalog = ReplayedCatalog(name, made, named, {1: PLACE})
    return CatalogReplay(catalog, max_age=300.0)


def detection(udid: str, at: float, late: float = math.nan) -> DecodedDetection:
    """Seen `at` seconds after noon; its record came so much later."""
    record: Any = FileRecord(b"", 1, timestamp=(NOON + at + late) * 1000)
    message = Detection(
        uuid=UUID, major=1, minor=2, device=ReceivedDevice(udid=udid), proximity="near"
    )
    return DecodedDetection(record, message, KEY, Zone.NEAR, NOON + at)


def times(grants: list[Grant]) -> list[float]:
    return [grant.detection.detected_at - NOON for grant in grants]


def test_a_claim_holds_for_its_delay_in_the_time_of_the_detections() -> None:
    replayed = replay(campaign(id=7, delay=60))
    seen = [detection("a", at) for at in (0, 59.999, 60, 30, 119, 120, 400)]
    assert times(replayed.decide(seen, counted=True)) == [0, 60, 120, 400]
    assert times(replayed.decide([detection("b", 10)], counted=True)) == [10]
    assert replayed.reached == {7: {"a", "b"}}
    assert replayed.sent == 5


def test_of_several_claims_the_first_one_ends_what_stands() -> None:
    replayed = replay(campaign(id=7, delay=60), campaign(id=8, delay=600))
    seen = [detection("a", at) for at in (0, 1, 30, 61, 62, 130, 131, 600, 601)]
    grants = replayed.decide(seen, counted=True)
    sent = list(zip((each.campaign.id for each in grants), times(grants), strict=True))
    assert sent == [(7, 0), (8, 0), (7, 61), (7, 130), (7, 600), (8, 600)]
    replayed.tally.fold()
    assert replayed.tally.detections == {Reason.GRANTED: 4, Reason.THROTTLED: 5}


def test_a_reused_decision_is_of_one_beacon_zone_and_age() -> None:
    replayed = replay(campaign(id=7, delay=60))
    here = [detection("a", at) for at in (0, 1, 2)]
    unknown = msgspec.structs.replace(detection("a", 3), zone=Zone.UNKNOWN)
    elsewhere = msgspec.structs.replace(detection("a", 4), key=BeaconKey(UUID, 9, 9))
    others = [unknown, elsewhere, detection("a", 5, late=400), detection("a", 6), detection("b", 7)]
    replayed.decide([*here, *others, detection("a", 8)], counted=True)
    replayed.tally.fold()
    assert replayed.tally.detections == {
        Reason.GRANTED: 2,
        Reason.THROTTLED: 4,
        Reason.UNKNOWN_PROXIMITY: 1,
        Reason.UNKNOWN_BEACON: 1,
        Reason.STALE: 1,
    }


def test_without_a_delay_each_detection_sends() -> None:
    replayed = replay(campaign(id=7, delay=0))
    assert times(replayed.decide([detection("a", 0)] * 3, counted=True)) == [0, 0, 0]
    assert replayed.reached == {7: {"a"}}


@pytest.mark.parametrize(
    ("late", "reason"),
    [
        (math.nan, Reason.GRANTED),
        (0.0, Reason.GRANTED),
        (299.9, Reason.GRANTED),
        (301.0, Reason.STALE),
        (-299.9, Reason.GRANTED),
        (-301.0, Reason.FUTURE),
        (-NOON - 0.001, Reason.GRANTED),  # Kafka's way to say that a record has no time
    ],
)
def test_a_detection_is_as_old_as_its_record_was_late(late: float, reason: Reason) -> None:
    replayed = replay(campaign())
    replayed.decide([detection("a", 0, late)], counted=True)
    replayed.tally.fold()
    assert replayed.tally.detections == {reason: 1}


def test_the_time_before_is_decided_and_not_counted() -> None:
    replayed = replay(campaign(id=7, delay=60))
    assert replayed.decide([detection("a", 0)], counted=False) == []
    assert times(replayed.decide([detection("a", 30), detection("a", 60)], counted=True)) == [60]
    replayed.tally.fold()
    assert replayed.tally.detections == {Reason.THROTTLED: 1, Reason.GRANTED: 1}
    assert replayed.sent == 1


def test_the_differences_between_two_catalogs() -> None:
    daily, often = campaign(id=7, delay=86_400), campaign(id=7, delay=60)
    new = campaign(id=8, name="New", delay=86_400)
    first, second = replay(daily, name="a"), replay(often, name="b")
    second.catalog = replay(often, new).catalog
    second.catalog.campaigns[8] = ReplayedCampaign(PLACE, "New", None, "template")  # type: ignore[index]
    comparison = CatalogComparison(first, second)
    seen = [detection("a", 0), detection("a", 100), detection("b", 200)]
    sent = [each.decide(seen, counted=True) for each in (first, second)]
    positions = comparison.note(*sent)
    assert positions[0] == set()
    assert [(sent[1][n].campaign.id, sent[1][n].udid) for n in sorted(positions[1])] == [
        (8, "a"),
        (7, "a"),
        (8, "b"),
    ]
    one, other = outcome_of(first, comparison, 0), outcome_of(second, comparison, 1)
    assert [(row.sent, row.only_here, row.devices_only_here) for row in one.campaigns] == [
        (2, 0, 0)
    ]
    by_name = {row.campaign.name: row for row in other.campaigns}
    assert (by_name["New"].sent, by_name["New"].only_here, by_name["New"].devices_only_here) == (
        2,
        2,
        2,
    )
    usual = by_name["Reading room"]
    assert (usual.sent, usual.only_here, usual.devices_only_here) == (3, 1, 0)
    assert sum(row.only_here or 0 for row in other.rows) == 3


def test_a_new_campaign_of_both_files_is_the_same_by_its_names() -> None:
    first, second = replay(campaign(id=7), known=False), replay(campaign(id=9), known=False)
    comparison = CatalogComparison(first, second)
    seen = [detection("a", 0)]
    positions = comparison.note(*(each.decide(seen, counted=True) for each in (first, second)))
    assert positions == (set(), set())
    assert comparison.devices_only(0) == {7: 0}
