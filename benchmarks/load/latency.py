"""Latencies in an HdrHistogram: microseconds, three digits, up to an hour."""

from pathlib import Path

from hdrh.histogram import HdrHistogram

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_MOST = 3_600_000_000
_DIGITS = 3
_MICROSECONDS = 1e6


class Latencies:
    """Latencies from the scheduled time of a detection, so that time in a slow generator counts
    (no coordinated omission)."""

    def __init__(self) -> None:
        self._histogram = HdrHistogram(1, _MOST, _DIGITS)

    def record(self, seconds: float) -> None:
        """Add a latency."""
        self._histogram.record_value(min(max(int(seconds * _MICROSECONDS), 1), _MOST))

    @property
    def count(self) -> int:
        """The number of latencies."""
        return int(self._histogram.get_total_count())

    def milliseconds(self, percentile: float) -> float:
        """A percentile; 100 is the maximum."""
        return float(self._histogram.get_value_at_percentile(percentile)) / 1000

    def as_json(self) -> dict[str, float | str]:
        """Percentiles in milliseconds, and the histogram itself (HdrHistogram's own encoding), so
        that those of several runs can be added."""
        of = {f"p{each:g}": self.milliseconds(each) for each in PERCENTILES}
        encoded = self._histogram.encode()
        return {
            **of,
            "max": self.milliseconds(100.0),
            "count": self.count,
            "histogram": encoded.decode() if isinstance(encoded, bytes) else str(encoded),
        }

    def write(self, file: Path) -> None:
        """The percentile distribution in milliseconds, as HdrHistogram's plotters read it."""
        with file.open("wb") as out:
            self._histogram.output_percentile_distribution(out, 1000.0)
