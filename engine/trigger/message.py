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
from engine.kafka.producer import Outgoing
from engine.kafka.topics import Topics
from engine.kafka.tracing import Span, Tracer
from engine.redis.devices import DeviceRecord, completed_device
from engine.trigger.grants import DecidedDetection, Grant
from engine.trigger.place_cache import IndexedPlace
from rules.model import CampaignSnapshot, Cap, Zone

_ZONES = tuple(zone.name.lower().encode() for zone in Zone)  # by the zone's number
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


class CampaignFragments:
    """The parts of the campaigns that fired lately, bounded in bytes."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: dict[int, CampaignParts] = {}

    def of(
        self,
        campaign: CampaignSnapshot,
        connector: ConnectorEntry | None,
        caps: tuple[Cap, ...] = (),
    ) -> CampaignParts:
        """The parts of a campaign. For one that needs the company's `connector`, `caps` are those
        that count it."""
        known = self._known.get(campaign.id)
        if (
            known is not None
            and known.campaign is campaign
            and (known.connector is connector or known.connector == connector)
            and known.caps == caps
        ):
            return known
        made = _parts(campaign, connector, caps)
        # Counted twice, because the campaign that the parts were made from stays in memory too.
        self._bytes += 2 * (len(made.reference) + len(made.texts) + len(made.content))
        if self._bytes > self._most_bytes:
            self._known.clear()
            self._bytes = 0
        else:
            self._known[campaign.id] = made
        return made


class MessageWriter:
    """Writes messages. `lifetime` (seconds) runs from detected_at to expires_at."""

    def __init__(self, *, topics: Topics, lifetime: float, tracer: Tracer | None = None) -> None:
        self._notifications = topics.notifications
        self._connector_calls = topics.connector_calls
        self._lifetime = lifetime
        self._tracer = tracer or Tracer()
        self._fragments = CampaignFragments()

    def write(
        self,
        decided: DecidedDetection,
        known: DeviceRecord | None,
        now: float,
    ) -> int:
        """Write the message of each grant, at `now` (epoch s). Returns the bytes of all.

        `known` is the catalog's record of the device.
        """
        detection, beacon = decided.detection, decided.grants[0].beacon
        record, received, at = detection.record, detection.message.device, detection.detected_at
        key = received.udid.encode()
        device = received if known is None else completed_device(received, known)
        zone, event, expires = b"", detection.event, at + self._lifetime
        if beacon.place.kind == "beacon" and detection.zone:
            zone = b'"proximity":"%b",' % _ZONES[detection.zone]
        if event is not None:
            zone += b'"on":"%b","visit_id":"%b",' % (
                event.type.encode(),
                str(event.visit.uuid).encode(),
            )
            expires = now + self._lifetime if event.type == "exit" else expires
        place = b'%b%b"device":%b,' % (
            beacon.encoded_place or _place_of(beacon),
            zone,
            _encode(device),
        )
        when = times(floor(at), floor(now), floor(expires))
        size = 0
        for grant in decided.grants:
            campaign = grant.campaign
            topic, connector, caps = self._notifications, None, _NO_CAPS
            if campaign.format == "connector":
                topic, connector, caps = self._connector_calls, beacon.connector, grant.caps
            parts = self._fragments.of(campaign, connector, caps)
            id_ = b"-".join(_uuid_parts(hexlify(grant.notification_id)))
            value = b"".join(
                (b'{"id":"', id_, parts.reference, place, parts.texts, when, parts.content)
            )
            headers = [("id", id_), parts.header]
            if record.headers:  # else there is no trace to look for
                grant.span = self._span_of(grant)
                headers += grant.span.headers
            grant.message = Outgoing(topic, key, value, headers)
            size += len(value)
        return size + len(key) * len(decided.grants)

    def _span_of(self, grant: Grant) -> Span:
        record = grant.record
        attributes = {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.destination.name": record.topic,
            "messaging.destination.partition.id": str(record.partition),
            "messaging.kafka.offset": record.offset,
            "proximity.company": grant.beacon.company_reference.id,
            "proximity.campaign": grant.campaign.id,
        }
        return self._tracer.begin("proximity.trigger", record.headers, attributes)


def content_bytes(campaigns: tuple[CampaignSnapshot, ...]) -> int:
    """About how many bytes the content of these campaigns has."""
    size = 0
    for campaign in campaigns:
        if campaign.content is not None:
            size += len(campaign.content)
    return size


def _parts(
    campaign: CampaignSnapshot, connector: ConnectorEntry | None, caps: tuple[Cap, ...]
) -> CampaignParts:
    reference = _encode(CampaignReference(campaign.id, campaign.name, campaign.hash))
    texts = {name: getattr(campaign, name) for name in ("title", "push", "background", "color")}
    return CampaignParts(
        campaign,
        connector,
        caps,
        b'","campaign":%b,' % reference,
        _encode(texts)[1:-1] + b",",
        _encode(_content(campaign, connector, caps))[1:],
        ("campaign", b"%d" % campaign.id),
    )


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
