from engine.kafka.workers import Records
from engine.trigger.beacon_cache import BeaconCache
from engine.trigger.claim_memory import RememberedClaims
from rules.model import Decision

class RefusalFilter:
    def __init__(self, cache: BeaconCache, max_age: float, path_loss_exponent: float) -> None: ...
    def split(
        self, records: Records, remembered: RememberedClaims, now: float
    ) -> tuple[Records, list[Decision]]: ...
