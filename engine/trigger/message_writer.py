"""Writes the messages of grants, whose devices were looked up: notifications and calls."""

from collections import deque
from collections.abc import Mapping
from math import floor
from typing import NamedTuple

import msgspec

from engine.kafka.batch_sender import message_size
from engine.kafka.publisher import Outgoing
from engine.kafka.topics import Topics
from engine.kafka.tracing import PassingTracer, Span, Tracer
from engine.redis.devices import DeviceKey, DeviceRecord, completed_device
from engine.trigger.fragments import ZONE_NAMES, CampaignFragments, place_of, spliced, times
from engine.trigger.grants import Grant, GrantMessage

_encode = msgspec.json.Encoder().encode


class WrittenMessages(NamedTuple):
    """Messages, and the bytes of their keys and values together."""

    messages: list[GrantMessage]
    size: int


class MessageWriter:
    """Writes messages. `lifetime` (seconds) runs from detected_at to expires_at.

    It writes `messages_at_once`; then other tasks should have their turn.
    """

    messages_at_once = 64

    def __init__(self, *, topics: Topics, lifetime: float, tracer: Tracer | None = None) -> None:
        self.topics = topics
        self.lifetime = lifetime
        self.tracer = tracer or PassingTracer()
        self.fragments = CampaignFragments()

    def write(
        self,
        grants: deque[Grant],
        known: Mapping[DeviceKey, DeviceRecord | None],
        now: float,
        most: int,
        most_bytes: int,
    ) -> WrittenMessages:
        """Take the first grants, at most `most`, and write their messages, at `now` (epoch s).

        The message that reaches `most_bytes` is the last one.
        """
        messages, size = list[GrantMessage](), 0
        detection, device = None, b""
        while grants and size < most_bytes and len(messages) < most:
            grant = grants.popleft()
            if grant.detection is not detection:
                detection = grant.detection
                received = detection.message.device
                device = _encode(completed_device(received, known.get(grant.device)))
            written = self.message_of(grant, device, now)
            messages.append(written)
            size += message_size(written.message)
        return WrittenMessages(messages, size)

    def message_of(self, grant: Grant, device: bytes, now: float) -> GrantMessage:
        """The message of a grant to `device` (its JSON)."""
        # Most records bring no headers, and then there is nothing to look for.
        span = self._span_of(grant) if grant.detection.record.headers else None
        return GrantMessage(self._outgoing(grant, device, now, span), grant, span)

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
        return self.tracer.begin("proximity.trigger", record.headers, attributes)

    def _outgoing(self, grant: Grant, device: bytes, now: float, span: Span | None) -> Outgoing:
        detection, beacon, campaign = grant.detection, grant.beacon, grant.campaign
        is_call = grant.is_call
        parts = self.fragments.of(campaign, beacon.connector if is_call else None)
        id_ = _uuid_text(grant.notification_id)
        at = detection.detected_at
        value = spliced(
            id_,
            parts,
            beacon.encoded_place or place_of(beacon),
            ZONE_NAMES[detection.zone],
            device,
            times(floor(at), floor(now), floor(at + self.lifetime)),
        )
        headers = [("id", id_), parts.header]
        if span is not None:
            headers += span.headers
        return Outgoing(
            self.topics.connector_calls if is_call else self.topics.notifications,
            detection.message.device.udid.encode(),
            value,
            headers,
            detection.record.timestamp,
        )


def _uuid_text(id_: bytes) -> bytes:
    digits = id_.hex()
    text = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return text.encode()
