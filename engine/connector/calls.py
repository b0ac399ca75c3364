"""Records of connector-calls: the calls that they ask for, and what results lead to."""

import uuid
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from aiokafka import ConsumerRecord

from catalog.errors import DecryptionError
from catalog.secrets import MISSING_SECRET_KEY, Cipher
from connectors.errors import EndpointError
from connectors.model import (
    PLACES,
    Call,
    CallFault,
    CallResult,
    Content,
    Declined,
    Endpoint,
    Failed,
    HttpMethod,
    Pairs,
    ParameterPlace,
    PastCall,
)
from connectors.schedule import ScheduledCall
from engine.kafka.dead_letters import DeadLetter, DeadLetterReason
from engine.kafka.messages import (
    BeaconReference,
    ConnectorCall,
    ConnectorEndpoint,
    Firing,
    Notification,
    PlaceReference,
    check_device,
    parse,
    shown,
)
from engine.kafka.producer import Outgoing
from engine.kafka.tracing import Span
from engine.redis.claims import CapPlace, ClaimUpdate, pack_caps
from engine.redis.devices import NO_ANSWER, DeviceKey, DeviceRecord, completed_device

if TYPE_CHECKING:
    from engine.connector.partition import CallPartition

DECLINED_SECONDS = 60  # for which a declined call keeps its claim at most

_HIGHEST_ID = 2**63 - 1
_LONGEST_DELAY = 99_999_999_999  # seconds; in Redis, as milliseconds of 14 digits
_CACHED_SECRETS = 4096

_decode = msgspec.json.Decoder(ConnectorCall).decode
_encode = msgspec.json.Encoder().encode
_COPIED_FIELDS = tuple(
    name for name in Firing.__struct_fields__ if name not in ("device", "title", "push")
)


@dataclass(slots=True, eq=False)
class PendingCall:
    """A record of connector-calls on its way, and what has become of it.

    A record that cannot be decoded has a `letter`, and nothing of what follows. `notification_id`
    owns the claim; `detected_at` is epoch seconds; `known` is the catalog's record of the device.
    """

    record: ConsumerRecord[bytes, bytes]
    letter: DeadLetter | None = None
    partition: "CallPartition" = field(init=False)
    message: ConnectorCall = field(init=False)
    notification_id: bytes = b""
    detected_at: float = 0.0
    known: DeviceRecord | None = None
    span: Span | None = None
    scheduled: ScheduledCall | None = None
    result: CallResult | None = None

    @property
    def id(self) -> str:
        """Of the notification; empty if the record cannot be decoded."""
        return "" if self.letter is not None else self.message.id

    @property
    def device_key(self) -> DeviceKey:
        """The device to look up."""
        return DeviceKey(self.message.company.id, self.message.device.udid)

    @property
    def outcome(self) -> str:
        """The label under which the call is counted: published, declined, or the fault."""
        if isinstance(self.result, Failed):
            return self.result.fault.value
        return "declined" if isinstance(self.result, Declined) else "published"

    def notification(self, topic: str) -> Outgoing | None:
        """The notification, if the reply has content; else None."""
        content = self.result
        if not isinstance(content, Content):
            return None
        message = self.message
        copied: dict[str, Any] = {name: getattr(message, name) for name in _COPIED_FIELDS}
        notification = Notification(
            **copied,
            **{content.format: content.content},  # type: ignore[arg-type]
            format=content.format,
            title=message.title if content.title is None else content.title,
            push=message.push if content.push is None else content.push,
            device=completed_device(
                message.device, None if self.known is NO_ANSWER else self.known
            ),
        )
        headers = [("id", message.id.encode()), ("campaign", b"%d" % message.campaign.id)]
        if self.span is not None:
            headers += self.span.headers
        udid = message.device.udid.encode()
        return Outgoing(topic, udid, _encode(notification), headers)

    def dead_letter(self) -> DeadLetter | None:
        """The dead letter, if the record cannot be decoded or the call failed; else None."""
        if not isinstance(self.result, Failed):
            return self.letter
        reason = DeadLetterReason(self.result.fault.value)
        return DeadLetter(self.record, reason, self.result.detail)

    def claim_update(self) -> ClaimUpdate | None:
        """What becomes of the claim and of the place in the caps: kept with content, shortened or
        given back without."""
        if self.letter is not None:
            return None
        message, keep, place = self.message, 0, None
        if isinstance(self.result, Content):
            keep = message.delay
        elif isinstance(self.result, Declined):
            keep = min(DECLINED_SECONDS, message.delay)
        if message.caps:
            place = CapPlace(pack_caps(message.company.id, message.caps), self._fate())
        elif not message.delay or (keep == message.delay and not isinstance(self.result, Content)):
            return None
        return ClaimUpdate(
            campaign_id=message.campaign.id,
            udid=message.device.udid,
            notification_id=self.notification_id,
            detected_at=self.detected_at,
            delay=message.delay,
            keep=keep,
            place=place,
        )

    def _fate(self) -> Literal["sent", "failed", "refused"]:
        """The fate of its place in the caps."""
        if isinstance(self.result, Content):
            return "sent"
        too_large = isinstance(self.result, Failed) and self.result.fault is CallFault.TOO_LARGE
        return "refused" if too_large else "failed"

    def past_call(self, now: float) -> PastCall:
        """The call in the form for account holders. `now` in epoch seconds."""
        scheduled = self.scheduled
        return PastCall(
            at=now,
            id=self.id,
            campaign=self.message.campaign.id,
            outcome=self.outcome,
            detail=self.result.detail if isinstance(self.result, Failed) else "",
            status=None if scheduled is None else scheduled.status,
            seconds=None if scheduled is None else scheduled.seconds,
            tries=0 if scheduled is None else scheduled.tried,
        )


def decode_call(record: ConsumerRecord[bytes, bytes]) -> PendingCall:
    """One call. Raises the errors in UNDECODABLE."""
    message = _decode(record.value or b"")
    _check(message)
    notification_id = uuid.UUID(message.id)
    if str(notification_id) != message.id:
        raise ValueError(f"id: {shown(message.id)} is no UUID in lower case with dashes")
    call = PendingCall(record)
    call.message = message
    call.notification_id = notification_id.bytes
    call.detected_at = parse(message.detected_at)
    return call


def _check(message: ConnectorCall) -> None:
    """Refuse values that the types allow but SQL, Redis or a notification cannot hold."""
    device, connector = message.device, message.connector
    if not all(0 < cap.most <= 1000 and 0 < cap.seconds <= _LONGEST_DELAY for cap in message.caps):
        raise ValueError("caps: not numbers of notifications and seconds")
    check_device(device)
    if not 0 <= message.delay <= _LONGEST_DELAY:
        raise ValueError(f"delay: {message.delay} s is not from 0 to {_LONGEST_DELAY}")
    places = [place for place in _places(message).values() if place is not None]
    if len(places) != 1 or (message.beacon is None) != (message.proximity is None):
        raise ValueError("one of beacon (with proximity), geofence, nfc and qrcode is required")
    references = (message.campaign, message.company, message.venue, *places, connector)
    if not all(each is None or 0 <= each.id <= _HIGHEST_ID for each in references):
        raise ValueError("id: one of campaign, company, venue and place has more than 63 bits")
    numbers = (device.id or 0, device.id_connector or 0)
    if not all(-_HIGHEST_ID <= number <= _HIGHEST_ID for number in numbers):
        raise ValueError("device: id or id_connector has more than 63 bits")
    beacon = message.beacon
    if beacon and not all(0 <= number <= 65535 for number in (beacon.major, beacon.minor)):
        raise ValueError("beacon: major and minor are whole numbers from 0 to 65535")


def _places(message: ConnectorCall) -> dict[str, BeaconReference | PlaceReference | None]:
    return {kind: getattr(message, kind) for kind in PLACES}


def build_call(pending: PendingCall, endpoint: Endpoint, fresh_seconds: float) -> Call:
    """The call, which may be tried while the detection is fresh."""
    message, known = pending.message, pending.known
    device = completed_device(message.device, known)
    places = _places(message).items()
    return Call(
        id=message.id,
        company_id=message.company.id,
        document={
            "id": message.id,
            "campaign": {"id": message.campaign.id, "name": message.campaign.name},
            "venue": {"id": message.venue.id, "name": message.venue.name},
            **{kind: msgspec.structs.asdict(place) for kind, place in places if place},
            **({"proximity": message.proximity} if message.beacon else {}),
            "device": {
                "udid": device.udid,
                "id_connector": device.id_connector,
                "name": device.name,
                "version": device.version,
                "model": device.model,
                # A device that the catalog does not have is no test device.
                "test": None if known is NO_ANSWER else known is not None and known.test,
            },
            "detected_at": message.detected_at,
        },
        fresh_until=pending.detected_at + fresh_seconds,
        endpoint=endpoint,
    )


class _Parameter(msgspec.Struct):
    key: str
    value: str


_decode_parameters = msgspec.json.Decoder(list[_Parameter]).decode


class EndpointDecryptor:
    """Decrypts a connector's parameters and secret, and caches them.

    Without a cipher only connectors without parameters and secret can be used. Decrypting costs
    more than all other preparation of a call.
    """

    def __init__(self, cipher: Cipher | None) -> None:
        self._cipher = cipher
        self._decrypt = lru_cache(maxsize=_CACHED_SECRETS)(self._decrypt_uncached)

    def decrypt(self, endpoint: ConnectorEndpoint) -> Endpoint:
        """The endpoint with plain parameters and secret. Raises EndpointError."""
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

    def _parameters(self, token: str | None) -> Pairs:
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
