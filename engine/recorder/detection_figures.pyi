from engine.recorder.aggregate import Statistics
from engine.recorder.detection_counts import Counted
from engine.redis.recent_detections import BeaconMinute

def figures_of(counted: Counted, now: float) -> tuple[Statistics, dict[BeaconMinute, int]]: ...
