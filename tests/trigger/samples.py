"""A beacon, campaigns and detections of this folder's tests."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from engine.kafka.detections import DecodedDetection, decode_record
from engine.kafka.topics import Topics
from engine.redis.devices import DeviceRecord
from engine.trigger.grants import DecidedDetection, Message, notification_ids
from engine.trigger.message import MessageWriter
from engine.trigger.place_cache import IndexedPlace
from rules.model import BeaconSnapshot, CampaignSnapshot, Decision, Reason, VenueSnapshot, Zone
from tests.kafka import records

NOW = 1_795_165_260.0
TOPICS = Topics.named("proximity.")
VENUE = VenueSnapshot(id=3, name="Mall", company_id=9, active=True)
BEACON = BeaconSnapshot(
    id=5,
    name="Door",
    uuid=records.UUID,
    major=1,
    minor=42,
    active=True,
    reach=Zone.FAR,
    venue=VENUE,
)


def campaign(**fields: Any) -> CampaignSnapshot:
    plain = CampaignSnapshot(
        id=7,
        name="Welcome",
        active=True,
        title="Hello",
        push="Come in",
        format="url",
        content="https://example.org",
        delay=60,
        start=datetime(2026, 1, 1, tzinfo=UTC),
        end=datetime(2027, 1, 1, tzinfo=UTC),
        start_minute=0,
        end_minute=1440,
        weekdays=127,
    )
    return msgspec.structs.replace(plain, **fields)


def decoded(**fields: Any) -> DecodedDetection:
    return decode_record(records.record(records.detection(**fields)), 2.0)


def notification_id(detection: DecodedDetection, sent: CampaignSnapshot) -> bytes:
    (id_,) = notification_ids(detection, (sent,))
    return id_


def granted(
    *sent: CampaignSnapshot,
    detection: DecodedDetection | None = None,
    beacon: IndexedPlace | None = None,
) -> DecidedDetection:
    """A detection that is granted these campaigns."""
    detection = detection or decoded()
    beacon = beacon or IndexedPlace(BEACON, sent, None)
    company = beacon.company_reference.id
    decision = Decision(Reason.GRANTED, open=sent, granted=sent, company_id=company)
    decided = DecidedDetection(detection, beacon, decision)
    decided.ids = notification_ids(detection, sent)
    return decided


def messages_of(decided: DecidedDetection, known: DeviceRecord | None = None) -> list[Message]:
    """Its messages, written a minute later."""
    return MessageWriter(topics=TOPICS, lifetime=300).write([decided], [known], NOW)
