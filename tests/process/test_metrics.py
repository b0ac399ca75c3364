"""The times of steps in the metrics."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from engine.process.metrics import Metrics, StepTimer
from engine.process.workers import WORKER_UP, merged


def sample(metrics: Metrics, name: str, step: str) -> float | None:
    labels = {"role": "trigger", "step": step}
    return metrics.registry.get_sample_value(f"proximity_batch_seconds_{name}", labels)


def test_a_step_is_timed_and_one_that_raises_is_not_counted() -> None:
    metrics, times = Metrics(), iter([1.0, 1.5, 10.0, 11.0, 20.0])
    step = StepTimer(metrics, "trigger", lambda: next(times))
    with step("decide"), pytest.raises(ValueError, match="x"), step("claim"):
        raise ValueError("x")
    with step("decide"):
        pass
    assert sample(metrics, "count", "claim") in (None, 0)
    assert sample(metrics, "count", "decide") == 2
    assert sample(metrics, "sum", "decide") == pytest.approx((10.0 - 1.0) + (20.0 - 11.0))


ODD = 'a "label" of\nmany {marks}'


def _worker(number: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    counter = Counter("proximity_x", "Things\\counted", ["reason"], registry=registry)
    counter.labels(ODD).inc(number + 1)
    Gauge("proximity_plain", "Without a label", registry=registry).set(-number)
    Histogram("proximity_h", "Seconds", registry=registry, buckets=(1, 2)).observe(
        1.5, {"id": f"of {number}"}
    )
    return registry


@pytest.mark.parametrize(
    ("page_of", "parse"),
    [(generate_latest, parse_plain), (generate_openmetrics, parse_openmetrics)],
    ids=["plain", "openmetrics"],
)
def test_every_sample_is_there_under_its_worker(page_of, parse) -> None:
    pages = {number: page_of(_worker(number)).decode() for number in range(3)}
    families = list(parse(merged(pages, 3)))
    assert len({family.name for family in families}) == len(families)
    found = {family.name: family for family in families}
    assert found["proximity_x"].documentation == "Things\\counted"
    for number, page in pages.items():
        expected = {
            (sample.name, frozenset(sample.labels.items()), sample.value, repr(sample.exemplar))
            for family in parse(page)
            for sample in family.samples
        }
        here = {
            (s.name, frozenset(_without_worker(s.labels)), s.value, repr(s.exemplar))
            for family in families
            for s in family.samples
            if s.labels["worker"] == str(number) and s.name != WORKER_UP
        }
        assert here == expected
    assert {s.labels["worker"] for s in found["proximity_h"].samples} == {"0", "1", "2"}


def _without_worker(labels: dict[str, str]) -> set[tuple[str, str]]:
    return {pair for pair in labels.items() if pair[0] != "worker"}


def test_a_worker_without_an_answer_is_named() -> None:
    (up, *_) = parse_plain(merged({1: generate_latest(_worker(1)).decode()}, 2))
    assert {s.labels["worker"]: s.value for s in up.samples} == {"0": 0.0, "1": 1.0}


def test_no_answer_at_all_is_still_a_page() -> None:
    (up,) = parse_plain(merged({}, 2))
    assert [sample.value for sample in up.samples] == [0.0, 0.0]
