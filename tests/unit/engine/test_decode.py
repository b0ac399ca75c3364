"""Records of real pipelines are understood; others become dead letters with a reason."""

from typing import Any

import pytest

from engine.kafka.dead_letter_limit import PATIENCE, DeadLetterLimit
from engine.kafka.dead_letters import DeadLetterReason
from engine.kafka.detections import canonical_uuid, decode_detections, decode_record
from engine.kafka.errors import TooManyDeadLettersError
from rules.model import Zone
from tests.unit.engine.records import RECORD_TIME, UUID, detection, record

TEN_IN_PARIS = 1_795_165_200.0


def received(**fields: Any):
    return decode_record(record(detection(**fields)), 2.0)


@pytest.mark.parametrize(
    "uuid",
    [UUID, UUID.upper(), UUID.replace("-", ""), UUID.replace("-", "").upper()],
)
def test_a_uuid_is_the_same_in_every_form(uuid: str):
    assert received(uuid=uuid).key == (UUID, 1, 42)


@pytest.mark.parametrize("uuid", ["", "x" * 32, UUID[:-1], UUID + "0", UUID.replace("-", "--")])
def test_bad_uuids_are_refused(uuid: str):
    assert reason_of(uuid=uuid) == DeadLetterReason.INVALID_FIELD


def test_digits_may_come_as_strings():
    assert received(major="0", minor="65535").key == (UUID, 0, 65535)


@pytest.mark.parametrize("major", [-1, 65536, "65536", "x", "", "1.5", 1.5, True, [1]])
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


def test_a_zone_from_rssi():
    assert received(proximity=None, rssi=-59).zone is Zone.NEAR
    assert received(proximity=None, rssi=-59, tx_power=-40).zone is Zone.FAR
    assert decode_record(record(detection(proximity=None, rssi=-75)), 2.7).zone is Zone.NEAR


def test_an_explicit_zone_wins_over_rssi():
    assert received(proximity="far", rssi=-30).zone is Zone.FAR


def test_one_of_zone_and_rssi_is_needed():
    assert reason_of(proximity=None) == DeadLetterReason.INVALID_FIELD


@pytest.mark.parametrize(
    "written",
    [
        "2026-11-20T10:00:00+0100",
        "2026-11-20T10:00:00+01:00",
        "2026-11-20T09:00:00Z",
        "2026-11-20t09:00:00z",
        "2026-11-20T09:00:00.000Z",
        1_795_165_200_000,
    ],
)
def test_times_in_every_form(written: str | int):
    assert received(detected_at=written).detected_at == TEN_IN_PARIS


@pytest.mark.parametrize(
    "written",
    ["2026-11-20", "2026-11-20T10:00:00", "10:00", "", "2026-13-20T10:00:00Z", -1, 10**17, 1.5],
)
def test_bad_times_are_refused(written: object):
    assert reason_of(detected_at=written) == DeadLetterReason.INVALID_FIELD


def test_without_a_time_the_records_timestamp_counts():
    assert received(detected_at=None).detected_at == RECORD_TIME


@pytest.mark.parametrize("device", [{}, {"udid": ""}, {"udid": "x" * 256}, {"udid": 5}, "d", None])
def test_a_device_needs_a_udid(device: object):
    assert reason_of(device=device) == DeadLetterReason.INVALID_FIELD


def test_a_udid_that_sql_could_not_hold():
    assert reason_of(device={"udid": "a\0b"}) == DeadLetterReason.INVALID_FIELD


def test_unknown_fields_are_ignored():
    assert received(battery=0.5, device={"udid": "d", "colour": "red"}).message.device.udid == "d"


@pytest.mark.parametrize("value", [None, b"", b"{", b"\xff\xfe", b"nonsense", b'{"uuid":'])
def test_malformed_json_is_refused(value: bytes | None):
    (letter,) = decode_detections([record(value)], 2.0).dead_letters
    assert letter.reason == DeadLetterReason.MALFORMED_JSON


@pytest.mark.parametrize("value", [b"[]", b"null", b"5", b"{}", b'"text"'])
def test_json_that_is_no_detection(value: bytes):
    (letter,) = decode_detections([record(value)], 2.0).dead_letters
    assert letter.reason == DeadLetterReason.INVALID_FIELD


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


def test_the_limit_counts_what_is_decoded_and_what_is_not():
    now = 0.0
    limit = DeadLetterLimit(share=0.5, run=2, clock=lambda: now)
    broken = [record(b"{", offset=n, key=b"%d" % n) for n in range(4)]
    assert decode_detections(broken[:2], 2.0, limit).messages == []  # failing for no time yet
    now = PATIENCE
    decode_detections([record(detection(), offset=2)], 2.0, limit)
    assert len(decode_detections(broken[3:], 2.0, limit).dead_letters) == 1  # one key since then
    now = 2 * PATIENCE
    with pytest.raises(TooManyDeadLettersError):
        decode_detections([record(b"{", offset=4, key=b"another")], 2.0, limit)


def test_the_canonical_form():
    assert canonical_uuid(UUID.replace("-", "").upper()) == UUID


def reason_of(**fields: Any) -> DeadLetterReason:
    message = detection()
    for name, value in fields.items():
        if value is None:
            message.pop(name)
        else:
            message[name] = value
    (letter,) = decode_detections([record(message)], 2.0).dead_letters
    assert letter.detail
    return letter.reason
