"""The counts of a batch in the metrics."""

from collections import Counter
from typing import Any

import pytest

from engine.kafka.detections import DecodedDetection
from engine.process.metrics import Metrics
from engine.trigger.decision_counts import DecisionCounter
from engine.trigger.grants import Message
from rules.model import CampaignSnapshot, Decision, Reason
from tests.trigger.samples import campaign, granted, messages_of


@pytest.fixture
def two_campaigns() -> tuple[CampaignSnapshot, ...]:
    return campaign(id=1), campaign(id=2)


def totals(metrics: Metrics, name: str) -> dict[str, float]:
    return {
        sample.labels.get("reason", sample.labels.get("outcome", "")): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == name and sample.value
    }


def test_the_counts_of_all_companies_and_of_all_decisions_are_added_up(two_campaigns):
    """Companies share the tally of no company, and different tallies share reasons."""
    metrics = Metrics()
    ended = ((Reason.ENDED, 1),)
    decisions = [
        Decision(Reason.GRANTED, ended, 1, granted, company_id=company)
        for company in (1, 1, 2)
        for granted in (two_campaigns, two_campaigns[:1])
    ]
    DecisionCounter(metrics).count(decisions)
    assert totals(metrics, "proximity_detections_total") == {"granted": 6}
    assert totals(metrics, "proximity_decisions_total") == {
        "granted": 9,
        "ended": 6,
        "throttled": 6,
    }
    assert totals(metrics, "proximity_claims_total") == {"held": 6}


def test_grants_that_redis_denies_are_throttled(two_campaigns):
    metrics = Metrics()
    both, one, partly, wholly, alone, full = (
        granted(*two_campaigns[:most]) for most in (2, 1, 2, 2, 1, 1)
    )
    partly.deny([1, 0])
    assert partly.ids == both.ids[1:]
    wholly.deny([1, [2, 3, 0]])
    alone.deny([1])
    full.deny([[2, 3, 0]])
    assert (wholly.ids, alone.ids, full.ids) == ([], [], [])
    decided = [both, one, partly, wholly, alone, full]
    DecisionCounter(metrics).count_claimed(decided)
    assert totals(metrics, "proximity_detections_total") == {
        "granted": 3,
        "throttled": 1,
        "capped": 2,
    }
    assert totals(metrics, "proximity_decisions_total") == {
        "granted": 4,
        "throttled": 3,
        "capped": 2,
    }
    assert not totals(metrics, "proximity_claims_total")


def test_a_batch_of_values_is_what_each_of_them_would_be():
    values = [0.0, 0.005, 0.0050001, 0.3, 0.3, 300.0, 300.1, 4000.0]
    one, other = Metrics(), Metrics()
    for value in values:
        one.latency.observe(value)
    other.latency.observe_counts(Counter(values))
    assert histogram(one) == histogram(other)
    assert histogram(one)["proximity_detection_to_notification_seconds_count"] == len(values)


def histogram(metrics: Metrics) -> dict[str, Any]:
    return {
        sample.name + sample.labels.get("le", ""): pytest.approx(sample.value)
        for family in metrics.latency.collect()
        for sample in family.samples
    }


def message_of(detection: DecodedDetection | None = None, **fields: Any) -> Message:
    (message,) = messages_of(granted(campaign(**fields), detection=detection))
    return message


def test_sent_messages_are_counted_by_format_and_calls_separately():
    metrics = Metrics()
    html, url = message_of(format="html"), message_of()
    call, at = message_of(format="connector", content=None), html.decided.detection.detected_at
    DecisionCounter(metrics).count_sent([html, url, url, call], at + 2.5)
    DecisionCounter(metrics).count_sent([html], at - 60)  # from a phone whose clock is fast
    formats = {
        sample.labels["format"]: sample.value
        for family in metrics.notifications.collect()
        for sample in family.samples
        if sample.name == "proximity_notifications_total" and sample.value
    }
    assert formats == {"html": 2, "url": 2}
    handed_over = "proximity_connector_handovers_total"
    assert metrics.registry.get_sample_value(handed_over) == 1
    latency = "proximity_detection_to_notification_seconds"
    assert metrics.registry.get_sample_value(f"{latency}_count") == 4
    assert metrics.registry.get_sample_value(f"{latency}_sum") == 3 * 2.5
