"""Detections and what they are granted, for tests of what follows."""

from typing import Any

from engine.kafka.detections import DecodedDetection, decode_record
from engine.kafka.topics import Topics
from engine.trigger.grants import DecidedDetection, at_place, notification_ids
from engine.trigger.message import Message, MessageWriter
from engine.trigger.place_cache import IndexedPlace
from rules.model import CampaignSnapshot, Decision, Reason
from tests.kafka import records
from tests.rules.records import beacon as place_of

NOW = 1_795_165_260.0
TOPICS = Topics.of("proximity.")


def decoded(**fields: Any) -> DecodedDetection:
    return decode_record(records.record(records.detection(**fields)), 2.0)


def notification_id(detection: DecodedDetection, sent: CampaignSnapshot) -> bytes:
    (id_,) = notification_ids(at_place(detection, None), (sent,))
    return id_


def granted(
    *sent: CampaignSnapshot,
    detection: DecodedDetection | None = None,
    beacon: IndexedPlace | None = None,
) -> DecidedDetection:
    """A detection that is granted these campaigns."""
    detection = detection or decoded()
    beacon = beacon or IndexedPlace(place_of(), sent, None)
    company = beacon.company_reference.id
    decided = at_place(detection, beacon)
    decided.decision = Decision(Reason.GRANTED, open=sent, granted=sent, company_id=company)
    decided.ids = notification_ids(decided, sent)
    return decided


def written(decided: DecidedDetection) -> list[Message]:
    """Its messages, written a minute later."""
    return MessageWriter(topics=TOPICS, lifetime=300).write([decided], NOW)
