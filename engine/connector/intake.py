"""From a record of connector-calls to the call that its company's service receives."""

import uuid
from functools import lru_cache

import msgspec
from aiokafka import ConsumerRecord

from catalog.errors import DecryptionError
from catalog.secrets import MISSING_SECRET_KEY, Cipher
from connectors.errors import EndpointError
from connectors.model import (
    Call,
    CallBeacon,
    CallDevice,
    Endpoint,
    HttpMethod,
    NamedReference,
    ParameterPlace,
    Parameters,
)
from engine.kafka.messages import ConnectorCall, ConnectorEndpoint
from engine.kafka.timestamps import parse
from engine.redis.devices import NO_ANSWER, DeviceKey, DeviceRecord, completed_device

_HIGHEST_ID = 2**63 - 1
_LONGEST_DELAY = 99_999_999_999  # seconds; in Redis, as milliseconds of 14 digits
_CACHED_SECRETS = 4096

_decode = msgspec.json.Decoder(ConnectorCall).decode


class ReceivedCall(msgspec.Struct, gc=False):
    """A decoded record. `notification_id` is the owner of its claim; `detected_at` in epoch s."""

    record: ConsumerRecord[bytes, bytes]
    message: ConnectorCall
    notification_id: bytes
    detected_at: float

    @property
    def device_key(self) -> DeviceKey:
        """The device to look up."""
        return DeviceKey(self.message.company.id, self.message.device.udid)


def decode_call(record: ConsumerRecord[bytes, bytes]) -> ReceivedCall:
    """One call. Raises one of decoding.UNDECODABLE."""
    message = _decode(record.value or b"")
    _check(message)
    notification_id = uuid.UUID(message.id)
    if str(notification_id) != message.id:
        raise ValueError("a uuid in lower case with dashes - at `$.id`")
    return ReceivedCall(record, message, notification_id.bytes, parse(message.detected_at))


def _check(message: ConnectorCall) -> None:
    """Refuse what the types allow, but SQL, Redis or a notification cannot hold."""
    device, connector = message.device, message.connector
    if "\0" in device.udid:
        raise ValueError("a udid has no NUL character - at `$.device.udid`")
    if not 0 <= message.delay <= _LONGEST_DELAY:
        raise ValueError(f"seconds between 0 and {_LONGEST_DELAY} - at `$.delay`")
    references = (message.campaign, message.company, message.venue, message.beacon, connector)
    if not all(each is None or 0 <= each.id <= _HIGHEST_ID for each in references):
        raise ValueError("an id is a whole number of at most 63 bits - at `$.*.id`")
    numbers = (device.id or 0, device.id_connector or 0)
    if not all(-_HIGHEST_ID <= number <= _HIGHEST_ID for number in numbers):
        raise ValueError("a whole number of at most 63 bits - at `$.device`")
    if not all(0 <= number <= 65535 for number in (message.beacon.major, message.beacon.minor)):
        raise ValueError("major and minor are at most 65535 - at `$.beacon`")


def build_call(
    received: ReceivedCall,
    endpoint: Endpoint,
    known: DeviceRecord | None,
    fresh_seconds: float,
    traceparent: str | None = None,
) -> Call:
    """The call, to be tried while the detection is fresh.

    `known` is the catalog's record of the device: None where it has none. `traceparent` goes with
    the request.
    """
    message = received.message
    beacon, device = message.beacon, completed_device(message.device, known)
    return Call(
        id=message.id,
        company_id=message.company.id,
        campaign=NamedReference(message.campaign.id, message.campaign.name),
        venue=NamedReference(message.venue.id, message.venue.name),
        beacon=CallBeacon(
            id=beacon.id, name=beacon.name, uuid=beacon.uuid, major=beacon.major, minor=beacon.minor
        ),
        proximity=message.proximity,
        device=CallDevice(
            udid=device.udid,
            id_connector=device.id_connector,
            name=device.name,
            version=device.version,
            model=device.model,
            # A device that is not in the catalog is no test device.
            test=None if known is NO_ANSWER else known is not None and known.test,
        ),
        detected_at=message.detected_at,
        fresh_until=received.detected_at + fresh_seconds,
        endpoint=endpoint,
        traceparent=traceparent,
    )


class _Parameter(msgspec.Struct):
    key: str
    value: str


_decode_parameters = msgspec.json.Decoder(list[_Parameter]).decode


class EndpointDecryptor:
    """Decrypts a connector's parameters and secret. Without a cipher, connectors that have neither
    can be used.

    Keeps what it decrypted: decrypting costs more than all other preparation of a call.
    """

    def __init__(self, cipher: Cipher | None) -> None:
        self._cipher = cipher
        self._decrypt = lru_cache(maxsize=_CACHED_SECRETS)(self._decrypt_uncached)

    def decrypt(self, endpoint: ConnectorEndpoint) -> Endpoint:
        """Raises EndpointError."""
        try:
            method = HttpMethod(endpoint.method.upper())
            place = ParameterPlace(endpoint.auth.lower())
        except ValueError:
            raise EndpointError("the connector's method or auth is unknown") from None
        return Endpoint(
            url=endpoint.url,
            method=method,
            place=place,
            parameters=self._parameters(endpoint.parameters),
            secret=self._decrypt(endpoint.secret) if endpoint.secret else None,
        )

    def _parameters(self, token: str | None) -> Parameters:
        if not token:
            return ()
        try:
            parameters = _decode_parameters(self._decrypt(token))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise EndpointError(
                "the connector's parameters are no list of keys and values"
            ) from None
        return tuple((each.key, each.value) for each in parameters)

    def _decrypt_uncached(self, token: str) -> str:
        if self._cipher is None:
            raise EndpointError(MISSING_SECRET_KEY)
        try:
            return self._cipher.decrypt(token)
        except DecryptionError as error:
            raise EndpointError(str(error)) from None
