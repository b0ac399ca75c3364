"""What a batch came to, in metrics."""

from collections import Counter
from typing import Any

import pytest

from engine.process.metrics import Metrics
from engine.trigger.counts import DecisionCounts
from rules.decision import Decision
from rules.model import Reason


def totals(metrics: Metrics, name: str) -> dict[str, float]:
    return {
        sample.labels.get("reason", sample.labels.get("outcome", "")): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == name and sample.value
    }


def test_shared_decisions_are_multiplied_out():
    metrics = Metrics()
    too_far = Decision(Reason.TOO_FAR, ((Reason.TOO_FAR, 1),))
    mixed = Decision(Reason.THROTTLED, ((Reason.ENDED, 2),), throttled=3)
    DecisionCounts([too_far] * 5 + [mixed] * 2).add_to(metrics)
    assert totals(metrics, "proximity_detections_total") == {"too_far": 5, "throttled": 2}
    assert totals(metrics, "proximity_decisions_total") == {
        "too_far": 5,
        "ended": 4,
        "throttled": 6,
    }
    assert totals(metrics, "proximity_claims_total") == {"held": 6}


def test_a_grant_that_redis_denies_is_throttled(two_campaigns):
    metrics = Metrics()
    granted = Decision(Reason.GRANTED, (), 0, two_campaigns)
    denied = [(1, granted), (1, granted), (2, granted)]
    DecisionCounts([granted, granted], denied).add_to(metrics)
    assert totals(metrics, "proximity_detections_total") == {"granted": 1, "throttled": 1}
    assert totals(metrics, "proximity_decisions_total") == {"granted": 1, "throttled": 3}


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
