"""From a granted decision to the message that leaves: a notification, or a connector call."""

import hashlib
import uuid
from typing import Any

import msgspec

from catalog.index.entries import ConnectorEntry
from engine.kafka.detections import DecodedDetection
from engine.kafka.messages import (
    CampaignReference,
    ConnectorCall,
    ConnectorEndpoint,
    KnownDevice,
    Notification,
    ZoneThatTriggers,
)
from engine.kafka.publisher import Outgoing
from engine.kafka.timestamps import format_instant
from engine.kafka.topics import Topics
from engine.trigger.beacon_cache import IndexedBeacon
from rules.model import Campaign, Zone

_NAMESPACE = uuid.UUID("5f0c2a3e-7d0a-5c1b-9a8e-3f5d1c6b7e42").bytes
_VERSION_5 = 0x5000
_VARIANT = 0x8000_0000_0000_0000
_ZONE_NAMES: dict[Zone, ZoneThatTriggers] = {
    Zone.IMMEDIATE: "immediate",
    Zone.NEAR: "near",
    Zone.FAR: "far",
}
_encode = msgspec.json.Encoder().encode


def notification_id(heard: DecodedDetection, campaign: Campaign) -> bytes:
    """The 16 bytes of a UUID (version 5) of campaign, device and detection record.

    The record is topic, partition, offset and detected_at: the last one because a topic that is
    deleted and made again counts its offsets from 0.
    """
    record = heard.record
    name = (
        f"{campaign.id}\0{heard.message.device.udid}\0{record.topic}\0{record.partition}"
        f"\0{record.offset}\0{round(heard.detected_at * 1000)}"
    )
    digest = hashlib.sha1(_NAMESPACE + name.encode(), usedforsecurity=False).digest()
    high = int.from_bytes(digest[:8]) & ~0xF000 | _VERSION_5
    low = int.from_bytes(digest[8:16]) & ~(0b11 << 62) | _VARIANT
    return high.to_bytes(8) + low.to_bytes(8)


class Composer:
    """Builds outgoing messages. `lifetime` (seconds) runs from detected_at to expires_at."""

    def __init__(self, *, topics: Topics, lifetime: float) -> None:
        self._topics = topics
        self._lifetime = lifetime

    def compose(
        self,
        heard: DecodedDetection,
        beacon: IndexedBeacon,
        campaign: Campaign,
        owner: bytes,
        device: KnownDevice,
        now: float,
    ) -> Outgoing:
        """The message for one grant to `device`, under the id `owner` (from `notification_id`)."""
        id_ = _text(owner)
        firing = self._firing(heard, beacon, campaign, id_, now) | {"device": device}
        if campaign.format == "connector":
            topic = self._topics.connector_calls
            connector = _endpoint(beacon.connector)
            value = _encode(ConnectorCall(delay=campaign.delay, connector=connector, **firing))
        else:
            topic = self._topics.notifications
            content = {"format": campaign.format, campaign.format: campaign.content}
            value = _encode(Notification(**content, **firing))  # type: ignore[arg-type]
        udid = heard.message.device.udid.encode()
        headers = [("id", id_.encode()), ("campaign", b"%d" % campaign.id)]
        return Outgoing(topic, udid, value, headers)

    def _firing(
        self,
        heard: DecodedDetection,
        beacon: IndexedBeacon,
        campaign: Campaign,
        id_: str,
        now: float,
    ) -> dict[str, Any]:
        """The fields of a Firing, but for the device."""
        return {
            "id": id_,
            "campaign": CampaignReference(campaign.id, campaign.name, campaign.hash),
            "company": beacon.company_reference,
            "venue": beacon.venue_reference,
            "beacon": beacon.reference,
            "proximity": _ZONE_NAMES[heard.zone],
            "title": campaign.title,
            "push": campaign.push,
            "background": campaign.background,
            "color": campaign.color,
            "detected_at": format_instant(heard.detected_at),
            "triggered_at": format_instant(now),
            "expires_at": format_instant(heard.detected_at + self._lifetime),
        }


def _text(owner: bytes) -> str:
    digits = owner.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _endpoint(connector: ConnectorEntry | None) -> ConnectorEndpoint | None:
    if connector is None:
        return None
    return ConnectorEndpoint(
        id=connector.id,
        name=connector.name,
        url=connector.url,
        method=connector.method,
        auth=connector.auth,
        parameters=connector.parameters,
        secret=connector.secret,
    )
