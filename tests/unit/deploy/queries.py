"""What is wrong with a query: names that the product does not have. An empty list is good."""

from collections.abc import Iterator

from tests.unit.deploy.known_metrics import buckets_of, known_labels, known_values
from tests.unit.deploy.promql import grouped_labels, matchers_of, metrics_of


def faults_of(query: str) -> list[str]:
    """A line a fault."""
    return [*_unknown_metrics(query), *_unknown_labels(query), *_unknown_values(query)]


def _unknown_metrics(query: str) -> Iterator[str]:
    for name in metrics_of(query) - known_labels().keys():
        yield f"no metric {name}"


def _unknown_labels(query: str) -> Iterator[str]:
    of_all = set[str]().union(*(known_labels().get(name, ()) for name in metrics_of(query)))
    for label in grouped_labels(query) - of_all:
        yield f"no metric of the query has the label {label}"
    for matcher in matchers_of(query):
        if matcher.label not in known_labels().get(matcher.metric, ()):
            yield f"{matcher.metric} has no label {matcher.label}"


def _unknown_values(query: str) -> Iterator[str]:
    for matcher in matchers_of(query):
        if matcher.label == "le":
            known: frozenset[str] | set[str] | None = buckets_of(matcher.metric)
        else:
            known = known_values().get(matcher.label)
        if known is None:
            continue
        for value in matcher.values:
            if value.endswith(".*"):
                matches = any(each.startswith(value.removesuffix(".*")) for each in known)
            else:
                matches = value in known or value.startswith("$")
            if not matches:
                yield f"{matcher.metric}: {matcher.label} is never {value}"
