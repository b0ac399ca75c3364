from collections.abc import Sequence
from typing import TypeAlias

from engine.kafka.detections import DecodedDetection, Record
from engine.kafka.workers import Records
from engine.trigger.claim_memory import RememberedClaims
from engine.trigger.place_cache import PlaceCache
from rules.model import Decision
from rules.visits import Observation, VisitorKey, VisitPlace

# What tells where a device is, and the detection, or its record where that is not decoded.
Sighting: TypeAlias = tuple[
    Observation, VisitorKey, Sequence[VisitPlace], DecodedDetection | Record
]

class RefusalFilter:
    def __init__(self, cache: PlaceCache, max_age: float, path_loss_exponent: float) -> None: ...
    def split(
        self, records: Records, remembered: RememberedClaims, now: float
    ) -> tuple[Records, list[Decision], list[Sighting]]: ...
