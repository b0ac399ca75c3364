"""From a record of connector-calls to the build_call that its company's service is asked."""

import uuid

import msgspec
from aiokafka import ConsumerRecord

from connectors.model import Call, CallBeacon, CallDevice, Endpoint, NamedReference
from engine.kafka.dead_letters import DeadLetter
from engine.kafka.detections import failure_reason
from engine.kafka.messages import ConnectorCall
from engine.kafka.partition_worker import Records
from engine.kafka.timestamps import parse
from engine.redis.devices import NOT_ASKED, DeviceKey, KnownToCatalog, completed

_HIGHEST = 2**63 - 1
_LONGEST_DELAY = 99_999_999_999  # seconds; in Redis, as milliseconds of 14 digits

_decode = msgspec.json.Decoder(ConnectorCall).decode


class ReceivedCall(msgspec.Struct, gc=False):
    """A decoded record. `owner` is the id as a claim knows it; `detected_at` in epoch seconds."""

    record: ConsumerRecord[bytes, bytes]
    message: ConnectorCall
    owner: bytes
    detected_at: float

    @property
    def device_key(self) -> DeviceKey:
        """Whom the catalog is asked for."""
        return DeviceKey(self.message.company.id, self.message.device.udid)


def decode_calls(records: Records) -> tuple[list[ReceivedCall], list[DeadLetter], list[int]]:
    """The calls of a batch; what cannot be decoded, as dead letters, and their positions."""
    asked: list[ReceivedCall] = []
    dead: list[DeadLetter] = []
    positions: list[int] = []
    for position, record in enumerate(records):
        try:
            asked.append(_decode_call(record))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            dead.append(DeadLetter(record, failure_reason(error), str(error)))
            positions.append(position)
    return asked, dead, positions


def _decode_call(record: ConsumerRecord[bytes, bytes]) -> ReceivedCall:
    message = _decode(record.value or b"")
    _check(message)
    return ReceivedCall(record, message, _owner(message.id), parse(message.detected_at))


def _owner(id_: str) -> bytes:
    owner = uuid.UUID(id_)
    if str(owner) != id_:
        raise ValueError("a uuid in lower case with dashes - at `$.id`")
    return owner.bytes


def _check(message: ConnectorCall) -> None:
    """What the types cannot say: what SQL, Redis and the notification have no place for."""
    device, connector = message.device, message.connector
    if "\0" in device.udid:
        raise ValueError("a udid has no NUL character - at `$.device.udid`")
    if not 0 <= message.delay <= _LONGEST_DELAY:
        raise ValueError(f"seconds between 0 and {_LONGEST_DELAY} - at `$.delay`")
    references = (message.campaign, message.company, message.venue, message.beacon, connector)
    if not all(each is None or 0 <= each.id <= _HIGHEST for each in references):
        raise ValueError("an id is a whole number of at most 63 bits - at `$.*.id`")
    numbers = (device.id or 0, device.id_connector or 0)
    if not all(-_HIGHEST <= number <= _HIGHEST for number in numbers):
        raise ValueError("a whole number of at most 63 bits - at `$.device`")
    if not all(0 <= number <= 65535 for number in (message.beacon.major, message.beacon.minor)):
        raise ValueError("major and minor are at most 65535 - at `$.beacon`")


def build_call(
    asked: ReceivedCall, endpoint: Endpoint, known: KnownToCatalog | None, fresh_seconds: float
) -> Call:
    """What the service is asked, for as long as the detection is fresh.

    `known` is the catalog's record of the device: None where it has none.
    """
    message = asked.message
    beacon = message.beacon
    return Call(
        id=message.id,
        company_id=message.company.id,
        campaign=NamedReference(message.campaign.id, message.campaign.name),
        venue=NamedReference(message.venue.id, message.venue.name),
        beacon=CallBeacon(
            id=beacon.id, name=beacon.name, uuid=beacon.uuid, major=beacon.major, minor=beacon.minor
        ),
        proximity=message.proximity,
        device=_device(asked, known),
        detected_at=message.detected_at,
        fresh_until=asked.detected_at + fresh_seconds,
        endpoint=endpoint,
    )


def _device(asked: ReceivedCall, known: KnownToCatalog | None) -> CallDevice:
    """The device, completed from the catalog. Not in the catalog: no test device."""
    device = completed(asked.message.device, known)
    return CallDevice(
        udid=device.udid,
        id_connector=device.id_connector,
        name=device.name,
        version=device.version,
        model=device.model,
        test=None if known is NOT_ASKED else known is not None and known.test,
    )
