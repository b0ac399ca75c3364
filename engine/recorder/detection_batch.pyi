from collections.abc import Sequence

from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.kafka.partition_worker import Records

class DetectionBatch:
    keys: list[BeaconKey]
    def fill(self, messages: list[DecodedDetection], dead_positions: Sequence[int]) -> None: ...

class DetectionScanner:
    def __init__(self, path_loss_exponent: float) -> None: ...
    def read(self, records: Records) -> tuple[DetectionBatch, Records]: ...
