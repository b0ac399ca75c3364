"""The period of a replay, which is compared with the detections' own times."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from math import inf
from typing import NamedTuple

from engine.kafka.detections import DecodedDetection


class ReplayPeriod(NamedTuple):
    """From `since` up to, not including, `until`, in epoch seconds.

    Detections between `warm_up` and `since` are decided but not counted, so that their claims are
    known.
    """

    since: float = -inf
    until: float = inf
    warm_up: float = -inf

    @property
    def begins_cold(self) -> bool:
        """Whether the claims from before the period are unknown."""
        return self.since > -inf and self.warm_up >= self.since

    @property
    def is_all(self) -> bool:
        """Whether the period includes every time."""
        return self == ReplayPeriod()

    def parts(
        self, detections: list[DecodedDetection]
    ) -> Iterator[tuple[bool, Iterable[DecodedDetection]]]:
        """The detections of the period and its warm-up, in order, and whether they count."""
        if self.is_all:
            yield True, detections
            return
        within = (each for each in detections if self.warm_up <= each.detected_at < self.until)
        yield from groupby(within, lambda each: each.detected_at >= self.since)
