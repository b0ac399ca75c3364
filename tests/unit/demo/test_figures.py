from math import inf

import pytest
from prometheus_client import generate_latest

from engine.cli.demo.figures import EngineFigures, quantile, read_figures
from engine.process.metrics import Metrics


def test_figures_are_read_from_the_metrics_as_they_are_served() -> None:
    metrics = Metrics()
    metrics.detections.labels("too_far").inc(7)
    metrics.detections.labels("granted").inc(2)
    metrics.decisions.labels("throttled").inc(3)
    for seconds in (0.006, 0.007, 0.02):
        metrics.latency.observe(seconds)
    figures = read_figures(generate_latest(metrics.registry).decode())
    assert figures.detections == {"too_far": 7, "granted": 2}
    assert (figures.decided, figures.throttled) == (9, 3)
    assert 0.005 < (figures.latency_quantile(0.5) or 0) < 0.01
    assert 0.01 < (figures.latency_quantile(0.99) or 0) < 0.025


def test_an_engine_that_has_done_nothing_has_no_latency() -> None:
    figures = read_figures(generate_latest(Metrics().registry).decode())
    assert figures.decided == 0
    assert figures.latency_quantile(0.5) is None
    assert EngineFigures().latency_quantile(0.5) is None


@pytest.mark.parametrize(
    ("q", "seconds"), [(0.0, 0.0), (0.25, 0.5), (0.5, 1.0), (0.75, 2.0), (0.9, 3.0), (1.0, 3.0)]
)
def test_a_quantile_lies_within_its_bucket(q: float, seconds: float) -> None:
    buckets = [(1.0, 4.0), (1.5, 4.0), (2.5, 7.0), (3.0, 7.0), (inf, 8.0)]
    found = quantile(buckets, q)
    assert found == pytest.approx(seconds, abs=0.2)
