"""Writes the messages of grants: notifications, and calls for the connector role.

A message is put together from the parts of its campaign and of its place, which are encoded once,
and the fields that differ. It is byte for byte what msgspec writes for the types in
engine/kafka/messages.py; a property test compares the two.
"""

from binascii import hexlify
from collections.abc import Iterable
from struct import Struct
from typing import Any, cast

import msgspec

from catalog.index.entries import ConnectorEntry
from engine.kafka.detections import Record
from engine.kafka.messages import CampaignReference, ConnectorEndpoint, format_instant
from engine.kafka.producer import Outgoing
from engine.kafka.topics import Topics
from engine.kafka.tracing import Span, Tracer
from engine.redis.devices import completed_device
from engine.trigger.grants import DecidedDetection
from engine.trigger.place_cache import IndexedPlace
from rules.model import BeaconSnapshot, CampaignSnapshot, Cap, Zone

# By the zone's number.
_ZONES = tuple(b'"proximity":"%b",' % zone.name.lower().encode() for zone in Zone)
_NO_CAPS: tuple[Cap, ...] = ()
_MOST_BYTES = 16 * 1024 * 1024
_ENDPOINT_FIELDS = ConnectorEndpoint.__struct_fields__
_encode = msgspec.json.Encoder().encode
_uuid_parts = Struct("8s4s4s4s12s").unpack


class Message(Outgoing, frozen=True, gc=False):
    """A message of a campaign that a detection fires: a notification, or a call of the company's
    service. `span` is its work in the trace of the record, where that has one."""

    decided: DecidedDetection
    campaign: CampaignSnapshot
    notification_id: bytes
    span: Span | None = None

    @property
    def record(self) -> Record:
        """The record that led to it."""
        return self.decided.record


class CampaignParts(msgspec.Struct, frozen=True, gc=False):
    """The topic and the encoded parts of a campaign: after the id, after the device, and after the
    times.

    `campaign` is what the parts were made from; those of a call also from the company's connector
    and caps (`depends_on`).
    """

    campaign: CampaignSnapshot
    depends_on: tuple[ConnectorEntry | None, tuple[Cap, ...]] | None
    topic: str
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

    def write(self, sending: Iterable[DecidedDetection], now: float) -> list[Message]:
        """The messages of the granted campaigns, written at `now` (epoch s), noted as not
        acknowledged."""
        messages, times, known = list[Message](), dict[float, bytes](), self._known
        for decided in sending:
            ids, beacon = decided.ids, cast(IndexedPlace, decided.beacon)
            decided.unsent, is_traced = len(ids), bool(decided.record.headers)
            key = decided.device.udid.encode()
            middle, when = self._of_detection(decided, beacon, times, now)
            for campaign, id_ in zip(decided.decision.granted, ids, strict=True):
                parts = known.get(campaign.id)
                if parts is None or parts.campaign is not campaign or parts.depends_on is not None:
                    parts = self._parts_of(campaign, beacon)
                text = b"-".join(_uuid_parts(hexlify(id_)))
                pieces = (b'{"id":"', text, parts.reference, middle, parts.texts, when)
                value = b"".join((*pieces, parts.content))
                headers, span = [("id", text), parts.header], None
                if is_traced:
                    ids_ = {"company": decided.decision.company_id, "campaign": campaign.id}
                    span = self._tracer.begin("proximity.trigger", decided.record, ids_)
                    headers += span.headers
                messages.append(
                    Message(parts.topic, key, value, headers, decided, campaign, id_, span)
                )
        return messages

    def _of_detection(
        self, decided: DecidedDetection, beacon: IndexedPlace, times: dict[float, bytes], now: float
    ) -> tuple[bytes, bytes]:
        """The parts that the messages of a detection share: place and device, and the times."""
        event, at, known = decided.event, decided.detected_at, decided.known
        place = beacon.encoded_place or _place_of(beacon)
        if decided.zone and isinstance(beacon.place, BeaconSnapshot):
            place += _ZONES[decided.zone]
        when = times.get(at)
        if when is None:
            when = times[at] = self._times(at, now, at)
        if event is not None:
            visit = str(event.visit.uuid).encode()
            place += b'"on":"%b","visit_id":"%b",' % (event.type.encode(), visit)
            if decided.is_exit:
                when = self._times(at, now, now)
        device = decided.device if known is None else completed_device(decided.device, known)
        return b'%b"device":%b,' % (place, _encode(device)), when

    def _times(self, at: float, now: float, valid_from: float) -> bytes:
        """The part with the three times."""
        times = (at, now, valid_from + self._lifetime)
        written = tuple(format_instant(each).encode() for each in times)
        return b'"detected_at":"%b","triggered_at":"%b","expires_at":"%b",' % written

    def _parts_of(self, campaign: CampaignSnapshot, beacon: IndexedPlace) -> CampaignParts:
        """The parts of a campaign that are not known yet, or those of a call."""
        connector, caps, depends_on = None, _NO_CAPS, None
        if campaign.format == "connector":
            connector = beacon.connector
            caps = _NO_CAPS if campaign.ignores_caps else beacon.target.rules.caps
            depends_on = connector, caps
            known = self._known.get(campaign.id)
            if known and known.campaign is campaign and known.depends_on == depends_on:
                return known
        texts = {name: getattr(campaign, name) for name in ("title", "push", "background", "color")}
        parts = CampaignParts(
            campaign,
            depends_on,
            self._notifications if depends_on is None else self._connector_calls,
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
