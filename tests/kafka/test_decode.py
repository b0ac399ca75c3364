"""Records of real pipelines are understood; others become dead letters with a reason."""

from typing import Any

import pytest

from engine.kafka.dead_letters import DeadLetter, DeadLetterReason
from engine.kafka.detections import (
    DecodedBatch,
    DecodedDetection,
    Record,
    decode_record,
    decode_records,
)
from engine.kafka.messages import format_instant, parse
from rules.model import Zone
from tests.kafka.records import RECORD_TIME, UUID, detection, record


def decode(*records: Record) -> DecodedBatch[DecodedDetection]:
    return decode_records(list(records), lambda each: decode_record(each, 2.0))


def received(**fields: Any) -> DecodedDetection:
    return decode_record(record(detection(**fields)), 2.0)


def letter_of(**fields: Any) -> DeadLetter:
    (letter,) = decode(record(detection(**fields))).dead_letters
    assert letter.detail
    return letter


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"uuid": UUID.upper()}, (UUID, 1, 42)),
        ({"uuid": UUID.replace("-", "")}, (UUID, 1, 42)),
        ({"major": "0", "minor": "65535"}, (UUID, 0, 65535)),
        ({"major": "1".zfill(16), "minor": "00042"}, (UUID, 1, 42)),
        ({"battery": 0.5}, (UUID, 1, 42)),
    ],
)
def test_triples_as_pipelines_write_them(fields: dict[str, Any], key: Any):
    assert received(**fields).key == key


@pytest.mark.parametrize(
    ("fields", "zone"),
    [
        ({"proximity": "ProximityNear"}, Zone.NEAR),
        ({"proximity": "FAR"}, Zone.FAR),
        ({"proximity": 0}, Zone.UNKNOWN),
        ({"proximity": "far", "rssi": -30}, Zone.FAR),
        ({"proximity": None, "rssi": -59}, Zone.NEAR),
        ({"proximity": None, "rssi": -59, "tx_power": -40}, Zone.FAR),
    ],
)
def test_an_explicit_proximity_wins_over_rssi(fields: dict[str, Any], zone: Zone):
    assert received(**fields).zone is zone
    assert decode_record(record(detection(proximity=None, rssi=-75)), 2.7).zone is Zone.NEAR


def test_without_a_time_the_records_timestamp_counts():
    assert received(detected_at=None).detected_at == RECORD_TIME


@pytest.mark.parametrize(
    ("field", "longest"),
    [("udid", 255), ("name", 128), ("version", 128), ("model", 128), ("token_push", 4096)],
)
def test_strings_of_a_device_are_bounded(field: str, longest: int):
    device = {"udid": "d", field: "x" * longest}
    assert getattr(received(device=device).message.device, field) == "x" * longest
    detail = letter_of(device=device | {field: "x" * (longest + 1)}).detail
    assert detail.endswith(f"at `$.device.{field}`")
    assert len(detail) < 200


@pytest.mark.parametrize(
    "fields",
    [
        {"ip": "1" * 65},
        {"major": " " * 16 + "1"},
        {"minor": "1" + " " * 900_000},
        {"uuid": UUID + " " * 900_000},
        {"proximity": "near" + " " * 100},
        {"device": {}},
        {"device": "phone"},
        *[{"major": each} for each in (-1, 65536, "65536", "", "1.5", True)],
        *[{"proximity": each} for each in ("close", "", 4, -1, 1.5, True)],
    ],
)
def test_bad_and_long_values_are_refused(fields: dict[str, Any]):
    assert letter_of(**fields).reason == DeadLetterReason.INVALID_FIELD


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"proximity": "closer"}, "proximity: 'closer' is none of immediate, near, far, unknown"),
        ({"proximity": None}, "proximity: one of proximity and rssi is required"),
        ({"uuid": None}, "uuid: it is required, and missing"),
        ({"major": 70_000}, "Expected `int` <= 65535 - at `$.major`"),
        (
            {"device": {"udid": "d", "time_zone": "Mars/Olympus"}},
            "device.time_zone: 'Mars/Olympus' is no IANA time zone, such as Europe/Paris",
        ),
        (
            {"device": {"udid": "d", "id_connector": 2**63}},
            "Expected `int` <= 9223372036854775807 - at `$.device.id_connector`",
        ),
        (
            {"detected_at": 1_795_443_000},
            "detected_at: 1795443000 is 2026-11-23T14:10:00+0000 in epoch seconds: write epoch "
            "milliseconds",
        ),
    ],
)
def test_a_detail_names_the_field_its_value_and_the_rule(fields: dict[str, Any], detail: str):
    assert letter_of(**fields).detail.startswith(detail)


WHOLE = (record(detection()).value or b"")[:-1]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "malformed_json"),
        (b"\xff\xfe", "malformed_json"),
        (b'{"uuid":', "malformed_json"),
        (b"[]", "invalid_field"),
        (b"{}", "invalid_field"),
        (WHOLE + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "malformed_json"),
        (WHOLE.replace(b"device-1", b"\\ud800") + b"}", "malformed_json"),
        (WHOLE + b',"rssi":NaN}', "malformed_json"),
        (WHOLE + b',"rssi":1e999}', "invalid_field"),
        (WHOLE + b',"detected_at":' + b"9" * 5000 + b"}", "invalid_field"),
        (WHOLE.replace(b'"device-1"', b'"a\\u0000b"') + b"}", "invalid_field"),
    ],
)
def test_a_batch_keeps_the_order_beside_a_dead_letter(value: bytes | None, reason: str):
    good = [record(detection(), offset=offset) for offset in (6, 8)]
    batch = decode(good[0], record(value), good[1])
    assert [each.record for each in batch.messages] == good
    (letter,) = batch.dead_letters
    assert letter.reason.value == reason
    assert letter.outgoing("dead", 0.0).value == value


TEN = 1_795_165_200.0  # 2026-11-20T10:00:00+0100


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2026-11-20T10:00:00+0100", TEN),
        ("2026-11-20T09:00:00Z", TEN),
        ("2026-11-20 09:00:00-00:00", TEN),
        ("2026-11-20T09:00:00.123999999Z", TEN + 0.123),
        ("2026-11-19T20:15:00-1245", TEN),
        (1_795_165_200_000, TEN),
        (978_307_200_000, 978_307_200.0),
    ],
)
def test_every_form_that_is_accepted(written: str | int, expected: float) -> None:
    assert parse(written) == expected


@pytest.mark.parametrize(
    "written",
    [
        "",
        "2026-11-20T10:00:00",
        "2026-02-30T10:00:00Z",
        "2026-11-20T10:00:00+25:00",
        "２０26-11-20T10:00:00Z",
        1_795_165_200,
        978_307_199_999,
        10**30,
    ],
)
def test_anything_else_is_refused(written: str | int) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(written)


@pytest.mark.parametrize(("fraction", "second"), [(0.0, "00"), (0.999, "00"), (1.0, "01")])
def test_an_instant_is_written_in_whole_seconds_rounded_down(fraction: float, second: str) -> None:
    assert format_instant(TEN + fraction) == f"2026-11-20T09:00:{second}+0000"
