import math
from typing import Any

from engine.cli.replay.file_source import FileRecord
from engine.cli.replay.period import ReplayPeriod
from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.kafka.messages import Detection, ReceivedDevice
from rules.model import Zone


def detections(*times: float) -> list[DecodedDetection]:
    record: Any = FileRecord(b"", 1)
    message = Detection(uuid="u" * 32, major=1, minor=1, device=ReceivedDevice(udid="a"))
    key = BeaconKey("u", 1, 1)
    return [DecodedDetection(record, message, key, Zone.NEAR, at) for at in times]


def parts(period: ReplayPeriod, *times: float) -> list[tuple[bool, list[float]]]:
    found = period.parts(detections(*times))
    return [(counted, [each.detected_at for each in part]) for counted, part in found]


def test_all_there_is() -> None:
    assert ReplayPeriod().is_all
    assert parts(ReplayPeriod(), 3, 1, 2) == [(True, [3, 1, 2])]


def test_the_order_stays_and_the_end_is_outside() -> None:
    assert parts(ReplayPeriod(10, 20, 5), 4, 5, 9, 10, 20, 19.9, 8, 30) == [
        (False, [5, 9]),
        (True, [10, 19.9]),
        (False, [8]),
    ]


def test_which_replays_begin_cold() -> None:
    assert ReplayPeriod(10, 20, 10).begins_cold
    assert not ReplayPeriod(10, 20, 5).begins_cold
    assert not ReplayPeriod(-math.inf, 20).begins_cold
