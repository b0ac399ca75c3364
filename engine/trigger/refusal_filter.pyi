from typing import TypeAlias

from aiokafka import ConsumerRecord

from engine.kafka.workers import Records
from engine.trigger.claim_memory import RememberedClaims
from engine.trigger.place_cache import IndexedPlace, PlaceCache
from rules.model import Decision
from rules.visits import Observation

Seen: TypeAlias = tuple[ConsumerRecord[bytes, bytes], IndexedPlace, str, Observation]

class RefusalFilter:
    def __init__(self, cache: PlaceCache, max_age: float, path_loss_exponent: float) -> None: ...
    def split(
        self, records: Records, remembered: RememberedClaims, now: float
    ) -> tuple[Records, list[Decision], list[Seen]]: ...
