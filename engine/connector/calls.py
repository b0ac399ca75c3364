"""Records of connector-calls: the calls that they ask for, and what results lead to."""

import uuid
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

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
    ParameterPlace,
    PastCall,
)
from engine.kafka.dead_letters import DeadLetter
from engine.kafka.messages import (
    LONGEST_DELAY,
    ConnectorCall,
    ConnectorEndpoint,
    Firing,
    Notification,
    check_device,
    parse,
    shown,
)
from engine.kafka.producer import Outgoing
from engine.kafka.tracing import Span, traceparent_of
from engine.redis.claims import CapPlace, ClaimUpdate, pack_caps
from engine.redis.devices import NO_ANSWER, DeviceKey, DeviceRecord, completed_device

DECLINED_SECONDS = 60  # for which a declined call keeps its claim at most

_BYTES_OF_A_CALL = 2048  # of a usual record; what waits takes about three times as much memory
_CACHED_ENDPOINTS = 4096

_decode = msgspec.json.Decoder(ConnectorCall).decode
_encode = msgspec.json.Encoder().encode
_COPIED_FIELDS = tuple(
    name for name in Firing.__struct_fields__ if name not in ("device", "title", "push")
)


@dataclass(slots=True, eq=False)
class PendingCall:
    """A record of connector-calls on its way, and what has become of it.

    `topic` is that of the notification, whose id owns the claim; `detected_at` is epoch seconds, as
    is `fresh_from`: an exit may be long after its detection, and is fresh when it is triggered.
    `known` is the catalog's record of the device. `call` is missing if none could be made.
    """

    record: ConsumerRecord[bytes, bytes]
    topic: str
    message: ConnectorCall
    notification_id: bytes
    detected_at: float
    fresh_from: float
    known: DeviceRecord | None = None
    span: Span | None = None
    call: Call | None = None
    result: CallResult | None = None

    @property
    def device_key(self) -> DeviceKey:
        return DeviceKey(self.message.company.id, self.message.device.udid)

    @property
    def outcome(self) -> str:
        """The label under which the call is counted: published, declined, or the fault."""
        if isinstance(self.result, Failed):
            return self.result.fault.value
        return "declined" if isinstance(self.result, Declined) else "published"

    def notification(self) -> "AnsweredCall":
        """The notification with the content of the reply."""
        message, content = self.message, self.result
        assert isinstance(content, Content)  # noqa: S101
        copied: dict[str, Any] = {name: getattr(message, name) for name in _COPIED_FIELDS}
        notification = Notification(
            **copied,
            **{content.format: content.content},  # type: ignore[arg-type]
            format=content.format,
            title=message.title if content.title is None else content.title,
            push=message.push if content.push is None else content.push,
            device=completed_device(message.device, self.known),
        )
        headers = [("id", message.id.encode()), ("campaign", b"%d" % message.campaign.id)]
        if self.span is not None:
            headers += self.span.headers
        key = message.device.udid.encode()
        return AnsweredCall(self.topic, key, _encode(notification), headers, self)

    def dead_letter(self) -> DeadLetter | None:
        """The dead letter, if the call failed; else None."""
        if not isinstance(self.result, Failed):
            return None
        return DeadLetter(self.record, self.result.fault, self.result.detail)

    def claim_update(self) -> ClaimUpdate | None:
        """What becomes of the claim and of the place in the caps: kept with content, shortened or
        given back without."""
        message, keep, place = self.message, 0, None
        fate: Literal["sent", "failed", "refused"] = "failed"
        if isinstance(self.result, Content):
            keep, fate = message.delay, "sent"
        elif isinstance(self.result, Declined):
            keep = min(DECLINED_SECONDS, message.delay)
        elif isinstance(self.result, Failed) and self.result.fault is CallFault.TOO_LARGE:
            fate = "refused"
        if message.caps:
            place = CapPlace(pack_caps(message.company.id, message.caps), fate)
        elif not message.delay or (keep == message.delay and fate != "sent"):
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

    def past_call(self, now: float) -> PastCall:
        """The call in the form for account holders. `now` in epoch seconds."""
        call = self.call
        return PastCall(
            at=now,
            id=self.message.id,
            campaign=self.message.campaign.id,
            outcome=self.outcome,
            detail=self.result.detail if isinstance(self.result, Failed) else "",
            status=call.status if call else None,
            seconds=call.seconds if call else None,
            tries=call.tried if call else 0,
        )


class AnsweredCall(Outgoing, frozen=True, gc=False):
    """The notification with the content of the call's answer."""

    call: PendingCall

    @property
    def record(self) -> ConsumerRecord[bytes, bytes]:
        """The record that led to it."""
        return self.call.record


def decode_call(record: ConsumerRecord[bytes, bytes], topic: str) -> PendingCall:
    """One call, whose notification goes to `topic`. Raises the errors in UNDECODABLE."""
    message = _decode(record.value or b"")
    _check(message)
    notification_id = uuid.UUID(message.id)
    if str(notification_id) != message.id:
        raise ValueError(f"id: {shown(message.id)} is no UUID in lower case with dashes")
    detected_at = parse(message.detected_at)
    fresh_from = parse(message.triggered_at) if message.on == "exit" else detected_at
    return PendingCall(record, topic, message, notification_id.bytes, detected_at, fresh_from)


def _check(message: ConnectorCall) -> None:
    """Refuse values that the types allow but SQL, Redis or a notification cannot hold."""
    check_device(message.device)
    if not all(0 < cap.most <= 1000 and 0 < cap.seconds <= LONGEST_DELAY for cap in message.caps):
        raise ValueError("caps: not numbers of notifications and seconds")
    places = [kind for kind in PLACES if getattr(message, kind) is not None]
    if len(places) != 1 or (message.proximity and not message.beacon):
        raise ValueError("one of beacon (with proximity), geofence, nfc and qrcode is required")


def build_call(pending: PendingCall, endpoint: Endpoint, fresh_seconds: float) -> Call:
    """The call, which may be tried while the detection is fresh."""
    message, known = pending.message, pending.known
    device = completed_device(message.device, known)
    places = {kind: place for kind in PLACES if (place := getattr(message, kind)) is not None}
    return Call(
        id=message.id,
        company_id=message.company.id,
        document={
            "id": message.id,
            "campaign": {"id": message.campaign.id, "name": message.campaign.name},
            "venue": {"id": message.venue.id, "name": message.venue.name},
            **{kind: msgspec.structs.asdict(place) for kind, place in places.items()},
            # An exit by silence has none.
            **({"proximity": message.proximity} if message.proximity else {}),
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
        fresh_until=pending.fresh_from + fresh_seconds,
        endpoint=endpoint,
        traceparent=traceparent_of(pending.span.headers) if pending.span else None,
        weight=1 + len(pending.record.value or b"") // _BYTES_OF_A_CALL,
    )


class _Parameter(msgspec.Struct):
    key: str
    value: str


_decode_parameters = msgspec.json.Decoder(list[_Parameter]).decode


class EndpointDecryptor:
    """Decrypts connectors' parameters and secrets, and caches the endpoints.

    Without a cipher only connectors without parameters and secret can be used. Decrypting costs
    more than all other preparation of a call.
    """

    def __init__(self, cipher: Cipher | None) -> None:
        self._cipher = cipher
        self.decrypt = lru_cache(maxsize=_CACHED_ENDPOINTS)(self._decrypt)

    def _decrypt(self, endpoint: ConnectorEndpoint) -> Endpoint:
        """The endpoint with plain parameters and secret. Raises EndpointError."""
        try:
            method = HttpMethod(endpoint.method.upper())
            place = ParameterPlace(endpoint.auth.lower())
        except ValueError:
            raise EndpointError("the connector's method or auth is unknown") from None
        written = self._text(endpoint.parameters) or "[]"
        try:
            parameters = _decode_parameters(written)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            what = "the connector's parameters are no list of keys and values"
            raise EndpointError(what) from None
        return Endpoint(
            url=endpoint.url,
            method=method,
            place=place,
            parameters=tuple((each.key, each.value) for each in parameters),
            secret=self._text(endpoint.secret),
        )

    def _text(self, token: str | None) -> str | None:
        if not token:
            return None
        if self._cipher is None:
            raise EndpointError(MISSING_SECRET_KEY)
        try:
            return self._cipher.decrypt(token)
        except DecryptionError as error:
            raise EndpointError(str(error)) from None
