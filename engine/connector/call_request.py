"""From a record of connector-calls to the question that its company's service is asked."""

import uuid

import msgspec
from aiokafka import ConsumerRecord

from connectors.model import Beacon, Call, Device, Endpoint, Named
from engine.kafka.messages import ConnectorCall
from engine.kafka.timestamps import parse
from engine.redis.devices import NO_ANSWER, DeviceKey, DeviceRecord, completed_device

_HIGHEST = 2**63 - 1
_LONGEST_DELAY = 99_999_999_999  # seconds; in Redis, as milliseconds of 14 digits

_decode = msgspec.json.Decoder(ConnectorCall).decode


class Asked(msgspec.Struct, gc=False):
    """A decoded record. `owner` is the id as a claim knows it; `detected_at` in epoch seconds."""

    record: ConsumerRecord[bytes, bytes]
    message: ConnectorCall
    owner: bytes
    detected_at: float

    @property
    def device_key(self) -> DeviceKey:
        """Whom the catalog is asked for."""
        return DeviceKey(self.message.company.id, self.message.device.udid)


def decode_call(record: ConsumerRecord[bytes, bytes]) -> Asked:
    """One call. Raises one of decoding.UNDECODABLE."""
    message = _decode(record.value or b"")
    _check(message)
    return Asked(record, message, _owner(message.id), parse(message.detected_at))


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


def question(
    asked: Asked, endpoint: Endpoint, known: DeviceRecord | None, fresh_seconds: float
) -> Call:
    """What the service is asked, for as long as the detection is fresh.

    `known` is the catalog's record of the device: None where it has none.
    """
    message = asked.message
    beacon = message.beacon
    return Call(
        id=message.id,
        company_id=message.company.id,
        campaign=Named(message.campaign.id, message.campaign.name),
        venue=Named(message.venue.id, message.venue.name),
        beacon=Beacon(
            id=beacon.id, name=beacon.name, uuid=beacon.uuid, major=beacon.major, minor=beacon.minor
        ),
        proximity=message.proximity,
        device=_device(asked, known),
        detected_at=message.detected_at,
        fresh_until=asked.detected_at + fresh_seconds,
        endpoint=endpoint,
    )


def _device(asked: Asked, known: DeviceRecord | None) -> Device:
    """The device, completed from the catalog. Not in the catalog: no test device."""
    device = completed_device(asked.message.device, known)
    return Device(
        udid=device.udid,
        id_connector=device.id_connector,
        name=device.name,
        version=device.version,
        model=device.model,
        test=None if known is NO_ANSWER else known is not None and known.test,
    )
