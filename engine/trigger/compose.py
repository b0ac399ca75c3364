"""The step `compose`: from a grant to the message that leaves, a notification or a call."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import msgspec

from catalog.index.entries import ConnectorEntry
from engine.kafka.batch_sender import message_size
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
from engine.redis.devices import DeviceKey, DeviceLookup, completed_device
from engine.trigger.grants import Grant, GrantMessage
from rules.model import Zone

_BETWEEN_PAUSES = 64  # messages, after which the event loop has its turn
_ENDPOINT_FIELDS = ConnectorEndpoint.__struct_fields__
_ZONE_NAMES: dict[Zone, ZoneThatTriggers] = {
    Zone.IMMEDIATE: "immediate",
    Zone.NEAR: "near",
    Zone.FAR: "far",
}
_encode = msgspec.json.Encoder().encode


class Composer:
    """Builds the messages of grants. `lifetime` (seconds) runs from detected_at to expires_at."""

    def __init__(
        self,
        *,
        topics: Topics,
        lifetime: float,
        devices: DeviceLookup,
        turn_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._topics = topics
        self._lifetime = lifetime
        self._devices = devices
        self._turn_bytes = turn_bytes
        self._clock = clock

    async def compose_next(self, grants: deque[Grant], most: int) -> list[GrantMessage]:
        """Take grants and compose their messages, up to the bytes of a turn, or one if that is
        more, and at most so many."""
        keys = _devices_to_look_up(islice(grants, most), self._turn_bytes)
        known = await self._devices.find(keys) if keys else {}
        now, size = self._clock(), 0
        messages = list[GrantMessage]()
        while grants and size < self._turn_bytes and len(messages) < most:
            grant = grants.popleft()
            device = completed_device(grant.detection.message.device, known.get(grant.device_key))
            message = self.compose(grant, device, now)
            messages.append(GrantMessage(message, grant))
            size += message_size(message)
            if len(messages) % _BETWEEN_PAUSES == 0:
                await asyncio.sleep(0)
        return messages

    def compose(self, grant: Grant, device: KnownDevice, now: float) -> Outgoing:
        """The message of a grant to `device`, at `now` (epoch s)."""
        campaign, id_ = grant.campaign, _uuid_text(grant.notification_id)
        firing = self._firing(grant, id_, now) | {"device": device}
        if grant.is_call:
            topic = self._topics.connector_calls
            connector = _endpoint(grant.beacon.connector)
            value = _encode(ConnectorCall(delay=campaign.delay, connector=connector, **firing))
        else:
            topic = self._topics.notifications
            content = {"format": campaign.format, campaign.format: campaign.content}
            value = _encode(Notification(**content, **firing))  # type: ignore[arg-type]
        headers = [("id", id_.encode()), ("campaign", b"%d" % campaign.id)]
        at = grant.detection.record.timestamp
        return Outgoing(topic, grant.udid.encode(), value, headers, at)

    def _firing(self, grant: Grant, id_: str, now: float) -> dict[str, Any]:
        """The fields of a Firing, but for the device."""
        detection, beacon, campaign = grant.detection, grant.beacon, grant.campaign
        return {
            "id": id_,
            "campaign": CampaignReference(campaign.id, campaign.name, campaign.hash),
            "company": beacon.company_reference,
            "venue": beacon.venue_reference,
            "beacon": beacon.reference,
            "proximity": _ZONE_NAMES[detection.zone],
            "title": campaign.title,
            "push": campaign.push,
            "background": campaign.background,
            "color": campaign.color,
            "detected_at": format_instant(detection.detected_at),
            "triggered_at": format_instant(now),
            "expires_at": format_instant(detection.detected_at + self._lifetime),
        }


def _devices_to_look_up(grants: Iterable[Grant], most_bytes: int) -> set[DeviceKey]:
    """Those of the next notifications, up to so many bytes of content; a call needs none."""
    keys: set[DeviceKey] = set()
    size = 0
    for grant in grants:
        if grant.is_call:
            continue
        keys.add(grant.device_key)
        size += len(grant.campaign.content or "")
        if size > most_bytes:
            break
    return keys


def _uuid_text(id_: bytes) -> str:
    digits = id_.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _endpoint(connector: ConnectorEntry | None) -> ConnectorEndpoint | None:
    if connector is None:
        return None
    return ConnectorEndpoint(**{name: getattr(connector, name) for name in _ENDPOINT_FIELDS})
