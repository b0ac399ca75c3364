from collections.abc import Mapping, Sequence

from engine.kafka.detections import BeaconKey
from engine.recorder.detection_batch import DetectionBatch
from engine.recorder.local_days import DayRule
from engine.recorder.rows import ActiveBeacon, DeviceColumns, ToldDevice

class Counted:
    counted: int
    def __init__(
        self, batch: DetectionBatch, beacons: Mapping[BeaconKey, ActiveBeacon], rule: DayRule
    ) -> None: ...
    def device_updates(self) -> DeviceColumns: ...
    def note_stored(self, stored: Sequence[ToldDevice]) -> None: ...
