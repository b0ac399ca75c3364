"""Turns a record's message into a detection for the rules, or into a dead letter."""

import re
from functools import lru_cache
from typing import NamedTuple

import msgspec
from aiokafka import ConsumerRecord

from engine.kafka.dead_letter_limit import DeadLetterLimit
from engine.kafka.decoding import DecodedBatch, decode_records
from engine.kafka.messages import Detection
from engine.kafka.partition_worker import Records
from engine.kafka.timestamps import parse
from rules.model import Zone
from rules.proximity import parse_zone, zone_from_rssi

_HIGHEST = 65535
_UUID = re.compile(
    r"[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII
)
_decode = msgspec.json.Decoder(Detection).decode


class BeaconKey(NamedTuple):
    """The triple that names one beacon; `uuid` in lower case with dashes."""

    uuid: str
    major: int
    minor: int


class DecodedDetection(msgspec.Struct, gc=False):
    """A decoded detection. `detected_at` in epoch seconds: the message's, else the record's.

    `index` is its position in a record of several detections (engine/kafka/formats). The record's
    position and `index` identify the detection.
    """

    record: ConsumerRecord[bytes, bytes]
    message: Detection
    key: BeaconKey
    zone: Zone
    detected_at: float
    index: int = 0


def decode_detections(
    records: Records,
    path_loss_exponent: float,
    limit: DeadLetterLimit | None = None,
    *,
    among: Records | None = None,
) -> DecodedBatch[DecodedDetection]:
    """Decode a batch; see decode_records."""

    def decode(record: ConsumerRecord[bytes, bytes]) -> DecodedDetection:
        return detection_of(record, _decode(record.value or b""), path_loss_exponent)

    return decode_records(records, decode, limit, among=among)


def decode_record(
    record: ConsumerRecord[bytes, bytes], path_loss_exponent: float
) -> DecodedDetection:
    """One detection.

    Raises msgspec.DecodeError (not JSON), RecursionError (JSON nested too deep to be read) or
    ValueError (a field is wrong).
    """
    return detection_of(record, _decode(record.value or b""), path_loss_exponent)


def detection_of(
    record: ConsumerRecord[bytes, bytes], message: Detection, path_loss_exponent: float
) -> DecodedDetection:
    """The detection in a record's message. Raises ValueError (a field is wrong)."""
    if "\0" in message.device.udid:
        raise ValueError("a udid has no NUL character - at `$.device.udid`")
    proximity, detected_at = message.proximity, message.detected_at
    return DecodedDetection(
        record,
        message,
        beacon_key(message.uuid, message.major, message.minor),
        # An explicit proximity wins over rssi.
        _zone_of_rssi(message, path_loss_exponent) if proximity is None else parse_zone(proximity),
        record.timestamp / 1000 if detected_at is None else parse(detected_at),
    )


@lru_cache(maxsize=65_536)
def beacon_key(uuid: str, major: int | str, minor: int | str) -> BeaconKey:
    """The key of a triple as written. Cached, because few beacons are new."""
    return BeaconKey(canonical_uuid(uuid), _number(major), _number(minor))


@lru_cache(maxsize=65_536)
def canonical_uuid(text: str) -> str:
    """The UUID in lower case with dashes, from any accepted form. Raises ValueError."""
    lower = text.strip().lower()
    if not _UUID.fullmatch(lower):
        raise ValueError("32 hexadecimal digits, with or without dashes - at `$.uuid`")
    digits = lower.replace("-", "")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _number(digits: str | int) -> int:
    number = int(digits)
    if number > _HIGHEST:
        raise ValueError(f"major and minor are at most {_HIGHEST}")
    return number


def _zone_of_rssi(message: Detection, path_loss_exponent: float) -> Zone:
    if message.rssi is None:
        raise ValueError("one of proximity and rssi is required")
    return zone_from_rssi(message.rssi, message.tx_power, path_loss_exponent)
