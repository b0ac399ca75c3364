"""Records of real pipelines are understood; others become dead letters with a reason."""

from typing import Any

import pytest

from engine.kafka.dead_letters import DeadLetter, DeadLetterReason
from engine.kafka.detections import decode_detections, decode_record
from engine.kafka.messages import format_instant, parse
from rules.model import Zone
from tests.kafka.records import RECORD_TIME, UUID, detection, record


def received(**fields: Any):
    return decode_record(record(detection(**fields)), 2.0)


@pytest.mark.parametrize(
    "uuid",
    [UUID, UUID.upper(), UUID.replace("-", ""), UUID.replace("-", "").upper()],
)
def test_a_uuid_is_the_same_in_every_form(uuid: str):
    assert received(uuid=uuid).key == (UUID, 1, 42)


def test_digits_may_come_as_strings():
    assert received(major="0", minor="65535").key == (UUID, 0, 65535)


@pytest.mark.parametrize("major", [-1, 65536, "65536", "", "1.5", True, [1]])
def test_bad_majors_are_refused(major: object):
    assert reason_of(major=major) == DeadLetterReason.INVALID_FIELD


@pytest.mark.parametrize(
    ("proximity", "zone"),
    [
        ("immediate", Zone.IMMEDIATE),
        ("NEAR", Zone.NEAR),
        ("ProximityNear", Zone.NEAR),
        ("proximityFAR", Zone.FAR),
        ("unknown", Zone.UNKNOWN),
        (0, Zone.UNKNOWN),
        (1, Zone.IMMEDIATE),
        (2, Zone.NEAR),
        (3, Zone.FAR),
    ],
)
def test_zones_as_pipelines_spell_them(proximity: str | int, zone: Zone):
    assert received(proximity=proximity).zone is zone


@pytest.mark.parametrize("proximity", ["close", "", 4, -1, 1.5, True, {}])
def test_bad_zones_are_refused(proximity: object):
    assert reason_of(proximity=proximity) == DeadLetterReason.INVALID_FIELD


def test_a_zone_from_rssi_unless_there_is_an_explicit_one():
    assert received(proximity="far", rssi=-30).zone is Zone.FAR
    assert received(proximity=None, rssi=-59).zone is Zone.NEAR
    assert received(proximity=None, rssi=-59, tx_power=-40).zone is Zone.FAR
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
    assert detail.startswith(f"device.{field}: 'xxx")
    assert len(detail) < 200


@pytest.mark.parametrize(
    "fields",
    [
        {"ip": "1" * 65},
        {"major": " " * 16 + "1"},
        {"minor": "1" + " " * 900_000},
        {"uuid": UUID + " " * 900_000},
        {"proximity": "near" + " " * 100},
    ],
)
def test_other_strings_are_bounded(fields: dict[str, str]):
    assert letter_of(**fields).reason == DeadLetterReason.INVALID_FIELD


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"proximity": "closer"}, "proximity: 'closer' is none of immediate, near, far, unknown"),
        ({"proximity": None}, "proximity: one of proximity and rssi is required"),
        ({"major": "x1"}, "major: 'x1' is no whole number from 0 to 65535"),
        ({"uuid": "x" * 32}, f"uuid: '{'x' * 32}' is not 32 hexadecimal digits, with or without"),
        ({"uuid": None}, "uuid: it is required, and missing"),
        ({"device": {}}, "device.udid: it is required, and missing"),
        ({"device": "phone"}, "device: 'phone' is not accepted: expected object, got str"),
        (
            {"device": {"udid": "d", "time_zone": "Mars/Olympus"}},
            "device.time_zone: 'Mars/Olympus' is no IANA time zone, such as Europe/Paris",
        ),
        ({"major": 70_000}, "major: 70000 is not accepted: expected int <= 65535"),
        ({"detected_at": "today"}, "detected_at: 'today' is no timestamp: write 2026-11-20T"),
        (
            {"detected_at": 1_795_443_000},
            "detected_at: 1795443000 is 2026-11-23T14:10:00+0000 in epoch seconds: write epoch "
            "milliseconds",
        ),
    ],
)
def test_a_detail_names_the_field_its_value_and_the_rule(fields: dict[str, Any], detail: str):
    assert letter_of(**fields).detail.startswith(detail)


def test_unknown_fields_are_ignored():
    assert received(battery=0.5, device={"udid": "d", "colour": "red"}).message.device.udid == "d"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "malformed_json"),
        (b"", "malformed_json"),
        (b"\xff\xfe", "malformed_json"),
        (b'{"uuid":', "malformed_json"),
        (b"[]", "invalid_field"),
        (b"null", "invalid_field"),
        (b"{}", "invalid_field"),
    ],
)
def test_what_is_no_detection(value: bytes | None, reason: str):
    (letter,) = decode_detections([record(value)], 2.0).dead_letters
    assert letter.reason.value == reason


def test_a_batch_keeps_the_order_and_the_places_of_the_dead():
    records = [
        record(detection(minor=1), offset=10),
        record(b"{", offset=11),
        record(detection(minor=2), offset=12),
        record(b"[]", offset=13),
    ]
    batch = decode_detections(records, 2.0)
    assert [h.record.offset for h in batch.messages] == [10, 12]
    assert [letter.record.offset for letter in batch.dead_letters] == [11, 13]
    assert batch.dead_positions == [1, 3]


def reason_of(**fields: Any) -> DeadLetterReason:
    letter = letter_of(**fields)
    assert letter.detail
    return letter.reason


def letter_of(**fields: Any) -> DeadLetter:
    message = detection()
    for name, value in fields.items():
        if value is None:
            message.pop(name)
        else:
            message[name] = value
    (letter,) = decode_detections([record(message)], 2.0).dead_letters
    return letter


TEN = 1_795_165_200.0  # 2026-11-20T10:00:00+0100


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2026-11-20T10:00:00+0100", TEN),
        ("2026-11-20T10:00:00+01:00", TEN),
        ("2026-11-20T09:00:00Z", TEN),
        ("2026-11-20 09:00:00-00:00", TEN),
        ("2026-11-20T09:00:00.5Z", TEN + 0.5),
        ("2026-11-20T09:00:00.123999999Z", TEN + 0.123),
        ("2026-11-19T20:15:00-1245", TEN),
        (1_795_165_200_000, TEN),
        (1_795_165_200_001, TEN + 0.001),
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
        "2026-11-20T10:00:60Z",
        "2026-11-20T24:00:00Z",
        "2026-02-30T10:00:00Z",
        "2026-11-20T10:00:00+25:00",
        "２０26-11-20T10:00:00Z",
        "1795165200000",
        -1,
        0,
        1_795_165_200,
        978_307_199_999,
        253_402_300_800_000,
        10**30,
    ],
)
def test_anything_else_is_refused(written: str | int) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse(written)


@pytest.mark.parametrize(("fraction", "second"), [(0.0, "00"), (0.999, "00"), (1.0, "01")])
def test_an_instant_is_written_in_whole_seconds_rounded_down(fraction: float, second: str) -> None:
    assert format_instant(TEN + fraction) == f"2026-11-20T09:00:{second}+0000"
