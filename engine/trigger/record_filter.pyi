from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from engine.kafka.detections import DecodedDetection, Record
from engine.kafka.workers import Records
from engine.trigger.grants import DecidedDetection
from engine.trigger.place_cache import PlaceCache
from rules.model import Decision
from rules.visits import Observation, VisitorKey, VisitPlace

if TYPE_CHECKING:
    from engine.trigger.partition import TriggerPartition

# What tells where a device is, and the detection, or its record where that is not decoded.
Sighting: TypeAlias = tuple[
    Observation, VisitorKey, Sequence[VisitPlace], DecodedDetection | Record
]
# The decisions that refuse detections, those that may fire, and what visits need of all of them.
FilteredBatch: TypeAlias = tuple[list[Decision], list[DecidedDetection], list[Sighting]]

class RecordFilter:
    def __init__(self, cache: PlaceCache, max_age: float, path_loss_exponent: float) -> None: ...
    def split(
        self, records: Records, partition: TriggerPartition, version: int, now: float
    ) -> tuple[Records, FilteredBatch]: ...
