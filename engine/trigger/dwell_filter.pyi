from engine.kafka.partition_worker import Records
from engine.trigger.beacon_cache import BeaconCache
from engine.trigger.claim_memory import RememberedClaims
from rules.outcome import Decision

class DwellFilter:
    def __init__(self, cache: BeaconCache, max_age: float) -> None: ...
    def split(
        self, records: Records, remembered: RememberedClaims, now: float
    ) -> tuple[Records, list[Decision]]: ...
