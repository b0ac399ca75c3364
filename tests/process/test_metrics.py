"""The times of steps in the metrics."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from engine.process.workers import WORKER_UP, MergedPages

ODD = 'a "label" of\nmany {marks}'


def _worker(number: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    counter = Counter("proximity_x", "Things\\counted", ["reason"], registry=registry)
    counter.labels(ODD).inc(number + 1)
    Gauge("proximity_plain", "Without a label", registry=registry).set(-number)
    Histogram("proximity_h", "Seconds", registry=registry, buckets=(1, 2)).observe(1.5)
    return registry


def page(number: int) -> str:
    return str(generate_openmetrics(_worker(number)), "utf-8")


def test_every_sample_is_there_under_its_worker() -> None:
    pages = [page(0), page(1)]
    families = list(parse_openmetrics(generate_openmetrics(MergedPages(pages)).decode()))
    assert len({family.name for family in families}) == len(families)
    samples = [sample for family in families for sample in family.samples]
    for number in range(2):
        here = [s for s in samples if s.labels["worker"] == str(number) and s.name != WORKER_UP]
        expected = [
            s._replace(labels=s.labels | {"worker": str(number)})
            for family in parse_openmetrics(pages[number])
            for s in family.samples
        ]
        assert _values(here) == _values(expected)


def _values(samples) -> set[tuple[str, frozenset[tuple[str, str]], float]]:
    return {(s.name, frozenset(s.labels.items()), s.value) for s in samples}


def test_a_worker_without_an_answer_is_named() -> None:
    up, *others = parse_plain(generate_latest(MergedPages([None, page(1)])).decode())
    assert {s.labels["worker"]: s.value for s in up.samples} == {"0": 0.0, "1": 1.0}
    assert {s.labels["worker"] for family in others for s in family.samples} == {"1"}
