from collections.abc import Sequence

from engine.recorder.detection_counts import Counted
from engine.recorder.rows import DetectionRow

class TraceRows(Sequence[DetectionRow]):
    def __init__(self, counted: Counted, now: float) -> None: ...
    def as_copy(self) -> bytearray: ...
