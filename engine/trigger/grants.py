"""A detection with its decision, made from memory; its claims, and the ids of its messages."""

import hashlib
import uuid
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, NamedTuple, cast

import msgspec

from engine.kafka.detections import DecodedDetection, GeofenceKey, PlaceKey, Record, TagKey
from engine.kafka.messages import ReceivedDevice
from engine.redis.claims import (
    COUNTED,
    NOT_COUNTED,
    RETURNABLE,
    Answer,
    pack_caps,
    pack_request,
)
from engine.redis.devices import DeviceKey, DeviceLookup, DeviceRecord
from engine.trigger.claim_memory import RememberedClaims, capped_key, claim_key, claim_keys
from engine.trigger.place_cache import IndexedPlace
from rules.decision import UNKNOWN, Target, decide, refusal
from rules.model import Campaigns, CampaignSnapshot, CompanyRules, Decision, Reason, Zone
from rules.visits import VisitEvent

if TYPE_CHECKING:
    from engine.trigger.partition import TriggerPartition

_NAMESPACE = uuid.UUID("5f0c2a3e-7d0a-5c1b-9a8e-3f5d1c6b7e42").bytes
_RANDOM_BITS = 0xFFFFFFFF_FFFF_0FFF_3FFF_FFFFFFFFFFFF
_from_bytes = int.from_bytes
_VERSION_5 = 0x00000000_0000_5000_8000_000000000000  # and the variant of RFC 9562
_MOST_LISTED = 50  # campaigns of a decision that is shown
_OTHER_FIELDS = 600  # bytes of a message without its campaign's texts
_NO_CLAIMS: dict[int, float] = {}

# The reasons of decisions that check no campaign; places share such decisions.
SHARED = frozenset(list(Reason)[: list(Reason).index(Reason.INACTIVE)])


class CampaignPlan(NamedTuple):
    """What a granted campaign needs.

    `hash` is that of what its notification ids begin with, `delay` in ms, `counted` how the
    company's caps count it. `asks` says whether Redis is asked at all, `claims` has the keys of the
    claim that it takes (claim_memory.py).
    """

    id: int
    hash: "hashlib._Hash"
    delay: int
    counted: int
    asks: bool
    claims: tuple[int, ...]


class Plan(msgspec.Struct, frozen=True):
    """What a decision's granted campaigns need, compiled once for all detections that share it.

    `claims` are the keys of all claims that they take, `held_by` those of the remembered claims
    that may deny one of them. `size` is about that of the messages, in bytes.
    """

    decision: Decision
    campaigns: tuple[CampaignPlan, ...]
    held_by: frozenset[int]
    claims: tuple[int, ...]
    caps: bytes
    size: int
    has_notifications: bool

    def may_be_denied(self, claims: Mapping[int, float]) -> bool:
        """Whether one of these claims of a device may deny a campaign."""
        # Not the other way round: that would pass over all claims, which may be hundreds.
        return not claims.keys().isdisjoint(self.held_by)


def plan_of(decision: Decision, beacon: IndexedPlace) -> Plan:
    """The plan of the decision at this place, which remembers the last one."""
    plan: Plan | None = beacon.plan
    if plan is None or plan.decision is not decision:
        plan = beacon.plan = _compile(decision, beacon.target.rules)
    return plan


def _compile(decision: Decision, rules: CompanyRules) -> Plan:
    campaigns, held_by = list[CampaignPlan](), set[int]()
    caps = pack_caps(decision.company_id, rules.caps) if rules.caps else b""
    for campaign in decision.granted:
        counted = NOT_COUNTED
        if caps and not campaign.ignores_caps:
            counted = RETURNABLE if campaign.format == "connector" else COUNTED
            held_by.add(capped_key(caps))
        asks, claims = campaign.delay > 0 or counted > 0, claim_keys([campaign])
        id_, delay = campaign.id, campaign.delay * 1000
        campaigns.append(CampaignPlan(id_, _hash_of_campaign(id_), delay, counted, asks, claims))
        held_by.add(claim_key(campaign))
    return Plan(
        decision,
        tuple(campaigns),
        frozenset(held_by),
        tuple(key for each in campaigns for key in each.claims),
        caps,
        sum(map(_size_of_message, decision.granted)),
        any(each.format != "connector" for each in decision.granted),
    )


def _size_of_message(campaign: CampaignSnapshot) -> int:
    texts = (campaign.name, campaign.title, campaign.push, campaign.content or "")
    return _OTHER_FIELDS + sum(len(text.encode()) for text in texts)


class DecidedDetection(msgspec.Struct, gc=False):
    """A detection at its place and the decision about it, on the way to its messages.

    `record`, `device`, `key`, `zone`, `detected_at` and `index` are those of the decoded detection;
    a moment of a visit has an `event`. `beacon` is the place, None if the index does not have it.
    Only one that may fire has a `partition`, where its record is open, the beacon cache's `version`
    at which it was decided, and a `plan`. `elsewhere` has the campaigns that the same position
    fires at a geofence before this one, `time_zone` is the device's. A cycle adds the `ids`
    (16 bytes each) of the notifications of the granted campaigns, and how many claims Redis has
    denied: the decision is without those.
    Its messages have what the catalog has `known` of the device; `unsent` of them are not
    acknowledged.
    """

    record: Record
    device: ReceivedDevice
    key: PlaceKey | None
    zone: Zone
    detected_at: float
    beacon: IndexedPlace | None
    decision: Decision = None  # type: ignore[assignment]  # until it is decided
    partition: "TriggerPartition" = None  # type: ignore[assignment]  # of others nobody asks
    version: int = 0
    index: int = 0
    event: VisitEvent | None = None
    elsewhere: Collection[int] = ()
    time_zone: str | None = None
    plan: Plan = None  # type: ignore[assignment]  # of others nobody asks
    ids: Sequence[bytes] = ()
    denied: int = 0
    known: DeviceRecord | None = None
    unsent: int = 0

    @property
    def device_key(self) -> DeviceKey:
        """The key of the detected device in the catalog."""
        return DeviceKey(self.decision.company_id, self.device.udid)

    @property
    def is_exit(self) -> bool:
        """Whether it is the end of a visit, which may be long after the last detection."""
        return self.event is not None and self.event.type == "exit"

    def is_of(self, other: "DecidedDetection") -> bool:
        """Whether both come of one detection: at another place, or by a visit."""
        return (
            self.record.offset == other.record.offset
            and self.index == other.index
            and self.detected_at == other.detected_at
            and self.device.udid == other.device.udid
            and self.partition is other.partition
        )

    @property
    def target(self) -> Target:
        """The place, if the index has it, as the target of a detection, or of a moment."""
        target, event = cast(IndexedPlace, self.beacon).target, self.event
        return target if event is None else target.at_moment(event.type, event.minutes)

    def make_plan(self) -> None:
        """Find the plan of the decision, which grants campaigns."""
        self.plan = plan_of(self.decision, cast(IndexedPlace, self.beacon))

    def prepare(self) -> bytes:
        """Name the notifications of the granted campaigns. Returns the packed requests for claims,
        empty if they need none."""
        at = round(self.detected_at * 1000)
        identity, packed = _identity(self, at), b""
        ids: list[bytes] = []
        for number, begun, delay, counted, asks, _ in self.plan.campaigns:
            hashed = begun.copy()
            hashed.update(identity)
            bits = _from_bytes(hashed.digest()[:16]) & _RANDOM_BITS | _VERSION_5
            ids.append(id_ := bits.to_bytes(16))
            if asks:
                packed += pack_request(number, id_, at, delay, counted)
        self.ids = ids
        return packed

    def deny(self, answers: Sequence[Answer]) -> None:
        """Redis has answered for each granted campaign: 0 grants it, the others are denied."""
        kept: list[CampaignSnapshot] = []
        ids: list[bytes] = []
        capped = self.decision.capped
        for campaign, id_, answer in zip(self.decision.granted, self.ids, answers, strict=True):
            if not answer:
                kept.append(campaign)
                ids.append(id_)
            elif isinstance(answer, list):
                capped = (*capped, campaign)
            else:
                self.denied += 1
        self.ids = ids
        if self.beacon is not None:
            phase = self.target.phase_at(self.detected_at, self.time_zone)
            self.decision = phase.granting(tuple(kept), capped)

    def outcomes(self) -> dict[str, list[int]]:
        """A bounded number of campaign ids by reason; those that fired come first.

        Empty if the detection was refused before its campaigns were checked.
        """
        first = (Reason.GRANTED, Reason.THROTTLED, Reason.CAPPED)
        listed: dict[Reason, list[int]] = {reason: [] for reason in first}
        for number, reason in self.decision.by_campaign:
            listed.setdefault(reason, []).append(number)
        found: dict[str, list[int]] = {}
        room = _MOST_LISTED
        for reason, numbers in listed.items():
            if numbers and room:
                found[reason.value] = numbers[:room]
                room -= len(found[reason.value])
        return found


def at_place(detection: DecodedDetection, beacon: IndexedPlace | None) -> DecidedDetection:
    """The detection, to be decided; `beacon` is what the index has at its key."""
    device, at, index = detection.message.device, detection.detected_at, detection.index
    record, key, zone = detection.record, detection.key, detection.zone
    return DecidedDetection(record, device, key, zone, at, beacon, index=index)


def decide_from_memory(
    each: DecidedDetection, remembered: RememberedClaims, now: float, max_age: float
) -> Decision:
    """Decide a detection at `now` (epoch s) by the claims that are remembered."""
    beacon, at, time_zone = each.beacon, each.detected_at, each.time_zone
    if beacon is None:
        return unknown(each.key)
    target = each.target
    if each.is_exit:
        max_age = inf
    decision = decide(target, each.zone, at, now, max_age, _NO_CLAIMS, time_zone)
    if not decision.granted:
        return decision
    claims = remembered.by_device.get(each.device.udid, _NO_CLAIMS)
    if not each.elsewhere and not (claims and plan_of(decision, beacon).may_be_denied(claims)):
        return decision
    granted = remembered.not_held(claims, decision.granted, at)
    granted = tuple(campaign for campaign in granted if campaign.id not in each.elsewhere)
    capped: Campaigns = ()
    caps = target.rules.caps
    if caps and remembered.is_capped(claims, pack_caps(decision.company_id, caps), at):
        capped = tuple(campaign for campaign in granted if not campaign.ignores_caps)
        granted = tuple(campaign for campaign in granted if campaign.ignores_caps)
    return target.phase_at(at, time_zone).granting(granted, capped)


def remembered_time_zone(
    device: ReceivedDevice, rules: CompanyRules, devices: DeviceLookup
) -> str | None:
    """The device's time zone, where the company has quiet hours, as far as it is in memory."""
    if rules.quiet_hours is None or device.time_zone is not None:
        return device.time_zone
    return devices.remembered_time_zone(DeviceKey(rules.company_id, device.udid))


def unknown(key: PlaceKey | None) -> Decision:
    """The decision about a place that the index does not have."""
    if isinstance(key, TagKey):
        return refusal(Reason.UNKNOWN_TAG, key.company_id)
    return UNKNOWN["geofence" if isinstance(key, GeofenceKey) else "beacon"]


def notification_ids(detection: DecidedDetection, campaigns: Campaigns) -> list[bytes]:
    """For each campaign the 16 bytes of a UUID (version 5) of campaign, device and record."""
    identity = _identity(detection, round(detection.detected_at * 1000))
    return [_id(_hash_of_campaign(campaign.id), identity) for campaign in campaigns]


def _id(begun: "hashlib._Hash", identity: bytes) -> bytes:
    hashed = begun.copy()
    hashed.update(identity)
    return (_from_bytes(hashed.digest()[:16]) & _RANDOM_BITS | _VERSION_5).to_bytes(16)


def _identity(detection: DecidedDetection, at: int) -> bytes:
    """The identity of a detection at `at` (epoch ms): device and record.

    A moment of a visit is identified by its event.
    The record is topic, partition, offset and detected_at. The last one is included because a topic
    that is deleted and created again counts its offsets from 0. In a record of several detections
    the index of the detection is included too.
    """
    record, event, udid = detection.record, detection.event, detection.device.udid
    if event is not None:
        return b"\0%b\0visit\0%b" % (udid.encode(), event.id.bytes)
    source = record.topic.encode(), record.partition, record.offset
    identity = b"\0%b\0%b\0%d\0%d\0%d" % (udid.encode(), *source, at)
    return identity + b"\0%d" % detection.index if detection.index else identity


@lru_cache(maxsize=4096)
def _hash_of_campaign(campaign_id: int) -> "hashlib._Hash":
    """The hash of what the ids of a campaign's messages begin with; to be copied."""
    return hashlib.sha1(b"%b%d" % (_NAMESPACE, campaign_id), usedforsecurity=False)
