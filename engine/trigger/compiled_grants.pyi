from collections.abc import Callable, Sequence

from engine.kafka.detections import DecodedDetection
from engine.redis.claim_wire import DeviceRequests
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.claim_memory import RememberedClaims
from engine.trigger.grants import Grant
from rules.outcome import Decision

def decider(
    now: float, max_age: float, remembered: RememberedClaims
) -> Callable[[DecodedDetection, IndexedBeacon | None], Decision]: ...
def grants_of(
    detection: DecodedDetection, beacon: IndexedBeacon, decision: Decision
) -> list[Grant]: ...
def requests_of(grants: Sequence[Grant]) -> list[DeviceRequests]: ...
