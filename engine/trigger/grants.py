"""The stages of a detection in the trigger: candidate, grants for campaigns, messages."""

import hashlib
import uuid
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

import msgspec
from aiokafka import ConsumerRecord

from engine.kafka.dead_letters import DeadLetter
from engine.kafka.detections import DecodedDetection
from engine.kafka.publisher import Outgoing
from engine.kafka.tracing import Span
from engine.redis.claim_wire import DeviceRequests, requests_by_device
from engine.redis.claims import ClaimRequest, ClaimUpdate
from engine.redis.devices import DeviceKey
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.claim_memory import RememberedClaims
from engine.trigger.standing import standing_decision
from rules.decision import UNKNOWN_BEACON, decide
from rules.model import CampaignSnapshot
from rules.outcome import Decision

_NAMESPACE = uuid.UUID("5f0c2a3e-7d0a-5c1b-9a8e-3f5d1c6b7e42").bytes
_ID_BYTES = 16
_RANDOM_BITS = 0xFFFFFFFF_FFFF_0FFF_3FFF_FFFFFFFFFFFF
_VERSION_5 = 0x00000000_0000_5000_8000_000000000000  # and the variant of RFC 9562


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A detection that may fire, its beacon, and the cache's version when the beacon was found."""

    detection: DecodedDetection
    beacon: IndexedBeacon
    cache_version: int


class Grant(msgspec.Struct, frozen=True, gc=False):
    """A campaign that passed every check for a detection, and the id of its message.

    `device` is the key of the detected device in the catalog. `is_call` says whether the message is
    a call of the customer's service, and not a notification.
    """

    detection: DecodedDetection
    beacon: IndexedBeacon
    campaign: CampaignSnapshot
    decision: Decision
    notification_id: bytes
    device: DeviceKey
    is_call: bool

    @property
    def udid(self) -> str:
        """The udid of the detected device."""
        return self.device.udid

    def claim_request(self) -> ClaimRequest:
        """The request for the claim, or None if the campaign has no delay."""
        campaign, at = self.campaign, self.detection.detected_at
        return ClaimRequest(campaign.id, self.udid, self.notification_id, at, campaign.delay)

    def returned_claim(self) -> ClaimUpdate:
        """The update that gives the claim back."""
        campaign, at = self.campaign, self.detection.detected_at
        return ClaimUpdate(campaign.id, self.udid, self.notification_id, at, campaign.delay, keep=0)


class TakenIn(NamedTuple):
    """A batch after the decisions from memory; `refused` are the decisions that grant nothing."""

    candidates: list[Candidate]
    dead_letters: list[DeadLetter]
    refused: list[Decision]


class GrantMessage(msgspec.Struct, frozen=True, gc=False):
    """The message of a grant. `span` is its work in the trace of the record, where that has one."""

    message: Outgoing
    grant: Grant
    span: Span | None = None

    @property
    def record(self) -> ConsumerRecord[bytes, bytes]:
        """The record that led to the message."""
        return self.grant.detection.record


def decider(
    now: float, max_age: float, remembered: RememberedClaims
) -> Callable[[DecodedDetection, IndexedBeacon | None], Decision]:
    """Decides detections at `now` (epoch s), with the claims that are remembered then.

    A device that stays where it is throttled costs no `decide`: see engine/trigger/standing.py.
    """
    remembered.forget_expired(now)
    oldest, newest = now - max_age, now + max_age
    standing, standing_of = remembered.standing, remembered.standing.get
    claims_of, forbidding = remembered.of, remembered.forbidding

    def decision_on(detection: DecodedDetection, beacon: IndexedBeacon | None) -> Decision:
        if beacon is None:
            return UNKNOWN_BEACON
        zone, at, udid = detection.zone, detection.detected_at, detection.message.device.udid
        target = beacon.target
        stands, phase = standing_of(udid), target.current
        if (
            stands is not None
            and stands.phase is phase.mark
            and stands.zone is zone
            and phase.since <= at < stands.until
            and oldest <= at <= newest
        ):
            return phase.none_granted
        claims = remembered.young.get(udid) or claims_of(udid)
        decision = decide(target, zone, at, now, max_age, claims)
        if decision.granted:
            if read := forbidding(udid, decision.granted, at):
                return decide(target, zone, at, now, max_age, {**claims, **read})
        elif decision.throttled:
            standing[udid] = standing_decision(target.phase_at(at), zone, claims)
        return decision

    return decision_on


def notification_id(detection: DecodedDetection, campaign: CampaignSnapshot) -> bytes:
    """The 16 bytes of a UUID (version 5) of campaign, device and detection record."""
    return _id_of(campaign.id, _identity(detection))


def _identity(detection: DecodedDetection) -> bytes:
    """The identity of a detection: device and record.

    The record is topic, partition, offset and detected_at. The last one is included because a topic
    that is deleted and created again counts its offsets from 0. In a record of several detections
    the index of the detection is included too (docs/decisions/0077).
    """
    record = detection.record
    identity = (
        f"\0{detection.message.device.udid}\0{record.topic}\0{record.partition}"
        f"\0{record.offset}\0{round(detection.detected_at * 1000)}"
    )
    if detection.index:
        identity += f"\0{detection.index}"
    return identity.encode()


def _id_of(campaign_id: int, identity: bytes) -> bytes:
    hashed = hash_of_campaign(campaign_id).copy()
    hashed.update(identity)
    number = int.from_bytes(hashed.digest()[:_ID_BYTES])
    return (number & _RANDOM_BITS | _VERSION_5).to_bytes(_ID_BYTES)


@lru_cache(maxsize=4096)
def hash_of_campaign(campaign_id: int) -> "hashlib._Hash":
    """The hash of what the ids of a campaign's messages begin with; to be copied."""
    return hashlib.sha1(b"%b%d" % (_NAMESPACE, campaign_id), usedforsecurity=False)


def grants_of(
    detection: DecodedDetection, beacon: IndexedBeacon, decision: Decision
) -> list[Grant]:
    """One grant for each campaign that the decision grants."""
    if not decision.granted:
        return []
    identity = _identity(detection)
    device = DeviceKey(beacon.company_reference.id, detection.message.device.udid)
    return [
        Grant(
            detection,
            beacon,
            campaign,
            decision,
            _id_of(campaign.id, identity),
            device,
            campaign.format == "connector",
        )
        for campaign in decision.granted
    ]


def requests_of(grants: Sequence[Grant]) -> list[DeviceRequests]:
    """The requests for the claims of grants, by device; each campaign has a delay."""
    return requests_by_device(grant.claim_request() for grant in grants)


class Granting(Protocol):
    """The functions that each detection that may fire passes: those of this module, or the compiled
    ones of compiled_grants.pyx, which do the same."""

    def decider(
        self, now: float, max_age: float, remembered: RememberedClaims, /
    ) -> Callable[[DecodedDetection, IndexedBeacon | None], Decision]: ...
    def grants_of(
        self, detection: DecodedDetection, beacon: IndexedBeacon, decision: Decision, /
    ) -> list[Grant]: ...
    def requests_of(self, grants: Sequence[Grant], /) -> list[DeviceRequests]: ...
