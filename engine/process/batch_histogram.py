"""A histogram that takes the values of a whole batch at once."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping

from prometheus_client import Histogram
from prometheus_client.samples import Exemplar

_EXEMPLAR_SECONDS = 5.0  # from one to the next: Prometheus reads them less often


class BatchHistogram(Histogram):
    """A histogram whose values come in batches.

    The library's `observe` takes a lock and searches the buckets, too slow for every notification.
    """

    _next_exemplar = 0.0

    def wants_exemplar(self, now: float) -> bool:
        """Whether it is time for another exemplar, at `now` (epoch s)."""
        return now >= self._next_exemplar

    def put_exemplar(self, value: float, labels: Mapping[str, str], now: float) -> None:
        """Add an exemplar to the bucket of the observed `value`; only OpenMetrics shows it."""
        self._next_exemplar = now + _EXEMPLAR_SECONDS
        bucket = self._buckets[bisect_left(self._upper_bounds, value)]
        bucket.set_exemplar(Exemplar(dict(labels), value, now))

    def observe_counts(self, counts: Mapping[float, int]) -> None:
        """Observe each value as often as its count says."""
        self._raise_if_not_observable()  # type: ignore[no-untyped-call]
        by_bucket: Counter[int] = Counter()
        for value, count in counts.items():
            by_bucket[bisect_left(self._upper_bounds, value)] += count
        for bucket, count in by_bucket.items():
            self._buckets[bucket].inc(count)
        self._sum.inc(sum(value * count for value, count in counts.items()))
