"""A histogram that takes the values of a whole batch at once."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping

from prometheus_client import Histogram


class BatchHistogram(Histogram):
    """Each `observe` takes a lock and searches the buckets, too slow for every notification."""

    def observe_counts(self, counts: Mapping[float, int]) -> None:
        """Observe each value as often as its count says."""
        self._raise_if_not_observable()  # type: ignore[no-untyped-call]
        by_bucket: Counter[int] = Counter()
        for value, count in counts.items():
            by_bucket[bisect_left(self._upper_bounds, value)] += count
        for bucket, count in by_bucket.items():
            self._buckets[bucket].inc(count)
        self._sum.inc(sum(value * count for value, count in counts.items()))
