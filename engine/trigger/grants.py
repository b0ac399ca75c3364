"""What a detection becomes on its way: a candidate, a grant for each campaign, a message."""

import hashlib
import uuid
from collections.abc import Callable, Iterator
from typing import NamedTuple

from aiokafka import ConsumerRecord

from engine.kafka.dead_letters import DeadLetter
from engine.kafka.detections import DecodedDetection
from engine.kafka.publisher import Outgoing
from engine.redis.claims import ClaimRequest, ClaimUpdate
from engine.redis.devices import DeviceKey
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.claim_memory import RememberedClaims
from rules.decision import Decision, decide
from rules.model import CampaignSnapshot

_NAMESPACE = uuid.UUID("5f0c2a3e-7d0a-5c1b-9a8e-3f5d1c6b7e42").bytes
_VERSION_5 = 0x5000
_VARIANT = 0x8000_0000_0000_0000


class Candidate(NamedTuple):
    """A detection that may fire, its beacon, and the version of the cache that had it so."""

    detection: DecodedDetection
    beacon: IndexedBeacon
    cache_version: int


class Grant(NamedTuple):
    """A campaign that passed every check for a detection, and the id of its message."""

    detection: DecodedDetection
    beacon: IndexedBeacon
    campaign: CampaignSnapshot
    decision: Decision
    notification_id: bytes

    @property
    def udid(self) -> str:
        """Of the device that was detected."""
        return self.detection.message.device.udid

    @property
    def device_key(self) -> DeviceKey:
        """By which the catalog knows the device."""
        return DeviceKey(self.beacon.company_reference.id, self.udid)

    @property
    def is_call(self) -> bool:
        """Whether the customer's service is called first, and a notification follows its reply."""
        return self.campaign.format == "connector"

    def claim_request(self) -> ClaimRequest:
        """The claim that it needs, if its campaign has a delay."""
        campaign, at = self.campaign, self.detection.detected_at
        return ClaimRequest(campaign.id, self.udid, self.notification_id, at, campaign.delay)

    def returned_claim(self) -> ClaimUpdate:
        """Its claim, given back."""
        campaign, at = self.campaign, self.detection.detected_at
        return ClaimUpdate(campaign.id, self.udid, self.notification_id, at, campaign.delay, keep=0)


class TakenIn(NamedTuple):
    """A batch as far as memory decides it; `refused` are the decisions that grant nothing."""

    candidates: list[Candidate]
    dead_letters: list[DeadLetter]
    refused: list[Decision]


class GrantMessage(NamedTuple):
    """The message of a grant."""

    message: Outgoing
    grant: Grant

    @property
    def record(self) -> ConsumerRecord[bytes, bytes]:
        """The record that led to it."""
        return self.grant.detection.record


def decider(
    now: float, max_age: float, remembered: RememberedClaims
) -> Callable[[DecodedDetection, IndexedBeacon | None], Decision]:
    """Decides detections at `now` (epoch s), with the claims that are remembered then."""
    remembered.forget_expired(now)
    claims_of = remembered.of

    def decision_on(detection: DecodedDetection, beacon: IndexedBeacon | None) -> Decision:
        return decide(
            None if beacon is None else beacon.target,
            detection.zone,
            detection.detected_at,
            now,
            max_age,
            claims_of(detection.message.device.udid),
        )

    return decision_on


def notification_id(detection: DecodedDetection, campaign: CampaignSnapshot) -> bytes:
    """The 16 bytes of a UUID (version 5) of campaign, device and detection record.

    The record is topic, partition, offset and detected_at: the last one because a topic that is
    deleted and made again counts its offsets from 0. In a record of several detections the place
    of each is a part of its identity (docs/decisions/0077).
    """
    record = detection.record
    name = (
        f"{campaign.id}\0{detection.message.device.udid}\0{record.topic}\0{record.partition}"
        f"\0{record.offset}\0{round(detection.detected_at * 1000)}"
    )
    if detection.index:
        name += f"\0{detection.index}"
    digest = hashlib.sha1(_NAMESPACE + name.encode(), usedforsecurity=False).digest()
    high = int.from_bytes(digest[:8]) & ~0xF000 | _VERSION_5
    low = int.from_bytes(digest[8:16]) & ~(0b11 << 62) | _VARIANT
    return high.to_bytes(8) + low.to_bytes(8)


def grants_of(
    detection: DecodedDetection, beacon: IndexedBeacon, decision: Decision
) -> Iterator[Grant]:
    """One for each campaign that the decision grants."""
    for campaign in decision.granted:
        id_ = notification_id(detection, campaign)
        yield Grant(detection, beacon, campaign, decision, id_)
