"""Malformed records: each is one dead letter, and no error stops the process."""

import pytest

from engine.kafka.detections import decode_detections
from tests.unit.engine.records import detection, record

WHOLE = (record(detection()).value or b"")[:-1]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (WHOLE + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "malformed_json"),
        (WHOLE + b',"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}", "malformed_json"),
        (WHOLE + b',"x":' + b"[" * 100_000, "malformed_json"),
        (WHOLE.replace(b"device-1", b"\\ud800") + b"}", "malformed_json"),
        (WHOLE.replace(b"device-1", b"\xff") + b"}", "malformed_json"),
        (WHOLE.replace(b"device-1", b"\xed\xa0\x80") + b"}", "malformed_json"),
        (WHOLE + b',"rssi":NaN}', "malformed_json"),
        (WHOLE + b',"rssi":1e999}', "invalid_field"),
        (WHOLE + b',"detected_at":' + b"9" * 5000 + b"}", "invalid_field"),
        (WHOLE.replace(b":42", b":" + b"9" * 5000) + b"}", "invalid_field"),
        (WHOLE.replace(b'"device-1"', b'"a\\u0000b"') + b"}", "invalid_field"),
    ],
)
def test_one_dead_letter(value: bytes, reason: str) -> None:
    batch = decode_detections([record(detection()), record(value), record(detection())], 2.0)
    assert [letter.reason.value for letter in batch.dead_letters] == [reason]
    assert batch.dead_positions == [1]
    assert len(batch.messages) == 2
    assert batch.dead_letters[0].outgoing("dead", 0.0).value == value


@pytest.mark.parametrize(
    "extra", [b',"x":' + b"9" * 5000, b',"rssi":-1e308,"tx_power":1e308', b',"rssi":-0.0']
)
def test_unusual_records_are_detections(extra: bytes) -> None:
    batch = decode_detections([record(WHOLE + extra + b"}")], 2.0)
    assert batch.dead_letters == []
    assert len(batch.messages) == 1
