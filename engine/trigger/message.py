"""Writes the messages of grants: notifications, and calls for the connector role.

A message is put together from the parts of its campaign and of its place, which are encoded once,
and the fields that differ. It is byte for byte what msgspec writes for the types in
engine/kafka/messages.py; a property test compares the two.
"""

from binascii import hexlify
from functools import lru_cache
from math import floor
from struct import Struct
from typing import Any

import msgspec

from catalog.index.entries import ConnectorEntry
from engine.kafka.messages import CampaignReference, ConnectorEndpoint, format_instant
from engine.kafka.topics import Topics
from engine.kafka.tracing import Span, Tracer
from engine.redis.devices import DeviceRecord, completed_device
from engine.trigger.grants import DecidedDetection, Message
from engine.trigger.place_cache import IndexedPlace
from rules.model import BeaconSnapshot, CampaignSnapshot, Cap, Zone

# By the zone's number.
_ZONES = tuple(b'"proximity":"%b",' % zone.name.lower().encode() for zone in Zone)
_NO_CAPS: tuple[Cap, ...] = ()
_MOST_BYTES = 16 * 1024 * 1024
_ENDPOINT_FIELDS = ConnectorEndpoint.__struct_fields__
_encode = msgspec.json.Encoder().encode
_uuid_parts = Struct("8s4s4s4s12s").unpack


class CampaignParts(msgspec.Struct, frozen=True, gc=False):
    """The encoded parts of a campaign: after the id, after the device, and after the times.

    `campaign`, `connector` and `caps` are what the parts were made from.
    """

    campaign: CampaignSnapshot
    connector: ConnectorEntry | None
    caps: tuple[Cap, ...]
    reference: bytes
    texts: bytes
    content: bytes
    header: tuple[str, bytes]


class MessageWriter:
    """Writes messages. `lifetime` (seconds) runs from detected_at to expires_at."""

    def __init__(self, *, topics: Topics, lifetime: float, tracer: Tracer | None = None) -> None:
        self._notifications = topics.notifications
        self._connector_calls = topics.connector_calls
        self._lifetime = lifetime
        self._tracer = tracer or Tracer()
        # The parts of the campaigns that fired lately, bounded in bytes.
        self._known: dict[int, CampaignParts] = {}
        self._bytes = 0

    def needs_device(self, decided: DecidedDetection) -> bool:
        """Whether a message is a notification; calls need no record of the device."""
        return any(each.format != "connector" for each in decided.decision.granted)

    def write(
        self, decided: DecidedDetection, known: DeviceRecord | None, now: float
    ) -> list[Message]:
        """The message of each granted campaign, at `now` (epoch s), noted as not acknowledged.

        `known` is the catalog's record of the device.
        """
        detection, beacon, event = decided.detection, decided.beacon, decided.detection.event
        if beacon is None:
            return []
        record, received, at = detection.record, detection.message.device, detection.detected_at
        key = received.udid.encode()
        device = received if known is None else completed_device(received, known)
        zone, expires = b"", now if decided.is_exit else at
        if detection.zone and isinstance(beacon.place, BeaconSnapshot):
            zone = _ZONES[detection.zone]
        if event is not None:
            visit = str(event.visit.uuid).encode()
            zone += b'"on":"%b","visit_id":"%b",' % (event.type.encode(), visit)
        place = beacon.encoded_place or _place_of(beacon)
        middle = b'%b%b"device":%b,' % (place, zone, _encode(device))
        when = times(floor(at), floor(now), floor(expires + self._lifetime))
        messages, size = list[Message](), 0
        for campaign, id_ in zip(decided.decision.granted, decided.ids, strict=True):
            topic, connector, caps = self._notifications, None, _NO_CAPS
            if campaign.format == "connector":
                topic, connector = self._connector_calls, beacon.connector
                caps = _NO_CAPS if campaign.ignores_caps else beacon.target.rules.caps
            parts = self._known.get(campaign.id)
            if parts is None or not (
                parts.campaign is campaign and parts.connector == connector and parts.caps == caps
            ):
                parts = self._encode(campaign, connector, caps)
            text = b"-".join(_uuid_parts(hexlify(id_)))
            value = b"".join(
                (b'{"id":"', text, parts.reference, middle, parts.texts, when, parts.content)
            )
            size += len(value)
            headers, span = [("id", text), parts.header], None
            if record.headers:  # else there is no trace to look for
                span = self._span_of(decided, campaign)
                headers += span.headers
            messages.append(Message(topic, key, value, headers, decided, campaign, id_, span))
        decided.unsent, decided.size = len(messages), size + len(key) * len(messages)
        return messages

    def _encode(
        self, campaign: CampaignSnapshot, connector: ConnectorEntry | None, caps: tuple[Cap, ...]
    ) -> CampaignParts:
        texts = {name: getattr(campaign, name) for name in ("title", "push", "background", "color")}
        parts = CampaignParts(
            campaign,
            connector,
            caps,
            b'","campaign":%b,'
            % _encode(CampaignReference(campaign.id, campaign.name, campaign.hash)),
            _encode(texts)[1:-1] + b",",
            _encode(_content(campaign, connector, caps))[1:],
            ("campaign", b"%d" % campaign.id),
        )
        # Counted twice, because the campaign that the parts were made from stays in memory too.
        self._bytes += 2 * (len(parts.reference) + len(parts.texts) + len(parts.content))
        if self._bytes > _MOST_BYTES:
            self._known.clear()
            self._bytes = 0
        else:
            self._known[campaign.id] = parts
        return parts

    def _span_of(self, decided: DecidedDetection, campaign: CampaignSnapshot) -> Span:
        record = decided.detection.record
        attributes = {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.destination.name": record.topic,
            "messaging.destination.partition.id": str(record.partition),
            "messaging.kafka.offset": record.offset,
            "proximity.company": decided.decision.company_id,
            "proximity.campaign": campaign.id,
        }
        return self._tracer.begin("proximity.trigger", record.headers, attributes)


def content_bytes(campaigns: tuple[CampaignSnapshot, ...]) -> int:
    """About how many bytes the content of these campaigns has."""
    size = 0
    for campaign in campaigns:
        if campaign.content is not None:
            size += len(campaign.content)
    return size


def _content(
    campaign: CampaignSnapshot, connector: ConnectorEntry | None, caps: tuple[Cap, ...]
) -> dict[str, Any]:
    """The last fields: of a call, or of a notification."""
    if campaign.format == "connector":
        fields: dict[str, Any] = {"delay": campaign.delay}
        if caps:
            fields["caps"] = caps
        return fields if connector is None else fields | {"connector": _endpoint(connector)}
    format_ = {"format": campaign.format}
    return format_ if campaign.content is None else format_ | {campaign.format: campaign.content}


def _endpoint(connector: ConnectorEntry) -> ConnectorEndpoint:
    return ConnectorEndpoint(**{name: getattr(connector, name) for name in _ENDPOINT_FIELDS})


def _place_of(beacon: IndexedPlace) -> bytes:
    """The part of a place: company, venue and place; encoded once for each place."""
    place = beacon.encoded_place = b'"company":%b,"venue":%b,"%b":%b,' % (
        _encode(beacon.company_reference),
        _encode(beacon.venue_reference),
        beacon.place.kind.encode(),
        _encode(beacon.reference),
    )
    return place


@lru_cache(maxsize=4096)
def times(detected: int, triggered: int, expires: int) -> bytes:
    """The part with the three times, in epoch seconds."""
    return b'"detected_at":"%b","triggered_at":"%b","expires_at":"%b",' % tuple(
        format_instant(each).encode() for each in (detected, triggered, expires)
    )
