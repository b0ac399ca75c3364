"""The step `compose`: turns a grant into its message, a notification or a call."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from math import floor

import msgspec

from engine.kafka.batch_sender import message_size
from engine.kafka.publisher import Outgoing
from engine.kafka.topics import Topics
from engine.kafka.tracing import PassingTracer, Span, Tracer
from engine.redis.devices import DeviceKey, DeviceLookup, completed_device
from engine.trigger.fragments import ZONE_NAMES, CampaignFragments, place_of, spliced, times
from engine.trigger.grants import Grant, GrantMessage

_BETWEEN_PAUSES = 64  # messages, after which other tasks have their turn
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
        tracer: Tracer | None = None,
    ) -> None:
        self._topics = topics
        self._lifetime = lifetime
        self._devices = devices
        self._turn_bytes = turn_bytes
        self._clock = clock
        self._tracer = tracer or PassingTracer()
        self._fragments = CampaignFragments()

    async def compose_next(self, grants: deque[Grant], most: int) -> list[GrantMessage]:
        """Compose the messages of the next grants: up to the bytes of a turn, at least one message.

        At most `most` grants are taken.
        """
        keys = _devices_to_look_up(islice(grants, most), self._turn_bytes)
        known = await self._devices.find(keys) if keys else {}
        now, size = self._clock(), 0
        messages = list[GrantMessage]()
        detection, device = None, b""
        while grants and size < self._turn_bytes and len(messages) < most:
            grant = grants.popleft()
            if grant.detection is not detection:
                detection = grant.detection
                received = detection.message.device
                device = _encode(completed_device(received, known.get(grant.device_key)))
            # Most records bring no headers, and then there is nothing to look for.
            span = self._span_of(grant) if detection.record.headers else None
            message = self.compose(grant, device, now, span)
            messages.append(GrantMessage(message, grant, span))
            size += message_size(message)
            if len(messages) % _BETWEEN_PAUSES == 0:
                await asyncio.sleep(0)
        return messages

    def _span_of(self, grant: Grant) -> Span:
        record = grant.detection.record
        attributes = {
            "messaging.system": "kafka",
            "messaging.source.name": record.topic,
            "messaging.kafka.source.partition": record.partition,
            "messaging.kafka.message.offset": record.offset,
            "proximity.company": grant.beacon.company_reference.id,
            "proximity.campaign": grant.campaign.id,
        }
        return self._tracer.begin("proximity.trigger", record.headers, attributes)

    def compose(
        self, grant: Grant, device: bytes, now: float, span: Span | None = None
    ) -> Outgoing:
        """The message of a grant to `device` (its JSON), at `now` (epoch s)."""
        detection, beacon, campaign = grant.detection, grant.beacon, grant.campaign
        is_call = grant.is_call
        parts = self._fragments.of(campaign, beacon.connector if is_call else None)
        id_ = _uuid_text(grant.notification_id)
        at = detection.detected_at
        value = spliced(
            id_,
            parts,
            beacon.encoded_place or place_of(beacon),
            ZONE_NAMES[detection.zone],
            device,
            times(floor(at), floor(now), floor(at + self._lifetime)),
        )
        headers = [("id", id_), parts.header]
        if span is not None:
            headers += span.headers
        return Outgoing(
            self._topics.connector_calls if is_call else self._topics.notifications,
            detection.message.device.udid.encode(),
            value,
            headers,
            detection.record.timestamp,
        )


def _devices_to_look_up(grants: Iterable[Grant], most_bytes: int) -> set[DeviceKey]:
    """The devices of the next notifications, up to so many bytes of content; calls need none."""
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


def _uuid_text(id_: bytes) -> bytes:
    digits = id_.hex()
    text = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return text.encode()
