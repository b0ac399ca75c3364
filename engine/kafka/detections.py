"""Decodes records into detections for the rules, or into dead letters."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Generic, Literal, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

import msgspec
from aiokafka import ConsumerRecord

from catalog.index.entries import ApplicationEntry
from engine.kafka.dead_letters import DeadLetter, DeadLetterLimit, DeadLetterReason
from engine.kafka.messages import LONGEST_VALUE, Detection, check_device, parse, shown
from engine.kafka.workers import Records
from rules.geofences import Circle, GeofenceGrid
from rules.model import PlaceKind, Reason, Zone
from rules.parsing import USUAL_NAMES, parse_zone, zone_from_rssi

Message = TypeVar("Message")
Record: TypeAlias = ConsumerRecord[bytes, bytes]

# The errors of a decoder for an invalid record: it is not JSON, a field is wrong, or its JSON is
# nested too deep to be read.
UNDECODABLE = (msgspec.DecodeError, ValueError, RecursionError)


class DecodedBatch(NamedTuple, Generic[Message]):
    """A decoded batch, in the order of its records."""

    messages: list[Message]
    dead_letters: list[DeadLetter]


def decode_records(
    records: Records,
    decode: Callable[[Record], Message],
    limit: DeadLetterLimit | None = None,
    *,
    among: Records | None = None,
) -> DecodedBatch[Message]:
    """Decode every record. A record for which `decode` raises UNDECODABLE becomes a dead letter.

    Raises TooManyDeadLettersError over the limit, before anything of the batch is published.
    `among` is the batch of the partition that the records belong to, if it has others: these are
    good, which matters to the limit.
    """
    decoded: DecodedBatch[Message] = DecodedBatch([], [])
    keep = decoded.messages.append
    for record in records:
        try:
            keep(decode(record))
        except UNDECODABLE as error:
            letter = DeadLetter(record, failure_reason(error), str(error))
            decoded.dead_letters.append(letter)
    if limit is not None:
        limit.note(among or records, decoded.dead_letters)
    return decoded


def failure_reason(error: Exception) -> DeadLetterReason:
    """The reason of the dead letter for an error of a decoder."""
    is_json = isinstance(error, msgspec.ValidationError) or not isinstance(
        error, msgspec.DecodeError | UnicodeDecodeError | RecursionError
    )
    return DeadLetterReason.INVALID_FIELD if is_json else DeadLetterReason.MALFORMED_JSON


_HIGHEST = 65535
_UUID = re.compile(
    r"[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII
)
_ONE_PLACE = "a detection has one place: uuid, major and minor, or geofence, position or tag"
_ZONES = "immediate, near, far, unknown"
_decode = msgspec.json.Decoder(Detection).decode


class BeaconKey(NamedTuple):
    """The triple that names one beacon; `uuid` in lower case with dashes."""

    uuid: str
    major: int
    minor: int

    @property
    def kind(self) -> PlaceKind:
        return "beacon"


class GeofenceKey(NamedTuple):
    """The id that names one geofence."""

    id: int

    @property
    def kind(self) -> PlaceKind:
        return "geofence"


class TagKey(NamedTuple):
    """The text that names one NFC tag or QR code of a company."""

    company_id: int
    kind: Literal["nfc", "qrcode"]
    value: str


PlaceKey: TypeAlias = BeaconKey | GeofenceKey | TagKey


class DecodedDetection(msgspec.Struct, gc=False):
    """A decoded detection. `key` is None for a position or a tag until its company is known.
    `detected_at` in epoch seconds: the message's, else the record's.

    `index` is its position in a record of several detections (engine/formats). The record's
    position and `index` identify the detection.
    """

    record: Record
    message: Detection
    key: PlaceKey | None
    zone: Zone
    detected_at: float
    index: int = 0


def find_keys(
    detection: DecodedDetection, application: ApplicationEntry | None, grid: GeofenceGrid | None
) -> Sequence[PlaceKey] | Reason:
    """The keys of the places of a position or a scanned tag, or why it has none.

    `application` is the one of its api_key; `grid` has the geofences of the application's company.
    """
    tag, position, inside = detection.message.tag, detection.message.position, list[Circle]()
    if application is None or not application.admits(detection.detected_at):
        return Reason.UNKNOWN_APPLICATION
    if tag is not None:
        return (TagKey(application.company_id, tag.kind, tag.value),)
    if position is not None and grid is not None:
        inside = grid.containing(position.latitude, position.longitude)
    if position is None or not inside:
        return Reason.OUTSIDE
    keys = [GeofenceKey(circle.id) for circle in inside if circle.admits(position.accuracy)]
    return keys or Reason.INACCURATE


def decode_record(record: Record, path_loss_exponent: float) -> DecodedDetection:
    """One detection.

    Raises msgspec.DecodeError (not JSON), RecursionError (JSON nested too deep to be read) or
    ValueError (a field is wrong).
    """
    return detection_of(record, _decode(record.value or b""), path_loss_exponent)


def detection_of(record: Record, message: Detection, path_loss_exponent: float) -> DecodedDetection:
    """The detection in a record's message. Raises ValueError (a field is wrong)."""
    written, uuid, major, minor = message.detected_at, message.uuid, message.major, message.minor
    check_device(message.device)
    try:
        detected_at = record.timestamp / 1000 if written is None else parse(written)
    except ValueError as error:
        raise ValueError(f"detected_at: {error}") from None
    if uuid is None or major is None or minor is None:
        return DecodedDetection(record, message, _other_place(message), Zone.UNKNOWN, detected_at)
    if message.geofence or message.position or message.tag:
        raise ValueError(_ONE_PLACE)
    zone = USUAL_NAMES.get(message.proximity)
    if zone is None:
        zone = _zone(message, path_loss_exponent)
    return DecodedDetection(record, message, beacon_key(uuid, major, minor), zone, detected_at)


def _other_place(message: Detection) -> GeofenceKey | None:
    """The key of a geofence. Raises ValueError unless the message names one place, no beacon."""
    geofence, tag = message.geofence, message.tag
    places = (geofence is not None) + (tag is not None) + (message.position is not None)
    if not message.uuid is message.major is message.minor is None or places != 1:
        if places:
            raise ValueError(_ONE_PLACE)
        missing = next(name for name in BeaconKey._fields if getattr(message, name) is None)
        raise ValueError(f"{missing}: it is required, and missing, without another place")
    if geofence is not None:
        return GeofenceKey(geofence.id)
    if message.api_key is None:
        raise ValueError("api_key: it is required with a position or a tag")
    if tag is not None and len(tag.value.encode()) > LONGEST_VALUE:
        raise ValueError(f"tag.value: it is longer than {LONGEST_VALUE} bytes")
    return None


@lru_cache(maxsize=65_536)  # because few beacons are new; the parts are short
def beacon_key(uuid: str, major: int | str, minor: int | str) -> BeaconKey:
    """The key of a triple as written. Raises ValueError."""
    try:
        canonical = canonical_uuid(uuid)
    except ValueError as error:
        raise ValueError(f"uuid: {error}") from None
    return BeaconKey(canonical, _number("major", major), _number("minor", minor))


@lru_cache(maxsize=65_536)
def canonical_uuid(text: str) -> str:
    """The UUID in lower case with dashes, from any accepted form. Raises ValueError."""
    lower = text.strip().lower()
    if not _UUID.fullmatch(lower):
        raise ValueError(f"{shown(text)} is not 32 hexadecimal digits, with or without dashes")
    return str(UUID(lower))


def _number(field: str, written: str | int) -> int:
    digits = written.strip() if isinstance(written, str) else str(written)
    if not (digits.isascii() and digits.isdigit()) or int(digits) > _HIGHEST:
        raise ValueError(f"{field}: {shown(written)} is no whole number from 0 to {_HIGHEST}")
    return int(digits)


def _zone(message: Detection, path_loss_exponent: float) -> Zone:
    """An explicit proximity wins over rssi."""
    if message.proximity is None:
        if message.rssi is None:
            raise ValueError("proximity: one of proximity and rssi is required")
        return zone_from_rssi(message.rssi, message.tx_power, path_loss_exponent)
    try:
        return parse_zone(message.proximity)
    except ValueError:
        raise ValueError(f"proximity: {shown(message.proximity)} is none of {_ZONES}") from None
