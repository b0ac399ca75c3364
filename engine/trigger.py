"""The role `trigger`: the way of a detection, from the record to the notification.

decode -> resolve the beacon -> decide -> claim -> publish. Each step takes a whole batch of one
partition; nothing awaits once per detection. When `handle` returns, every record of the batch is
decided and what it led to is acknowledged, so its offset may be committed.
"""

import copy
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from aiokafka import TopicPartition

from engine.decode import Heard, decode_batch
from engine.failures import until_redis_answers
from engine.kafka.dead_letters import DeadLetter, DeadLetterLimit, DeadLetterReason
from engine.kafka.publisher import MessageTooLargeError, Outgoing, Publisher
from engine.kafka.topics import Topics
from engine.kafka.worker import Records
from engine.metrics import Metrics
from engine.notify import Composer, notification_id
from engine.outcome import Outcome
from engine.settings import Settings
from engine.state.beacons import BeaconKey, IndexedBeacon
from engine.state.claims import ClaimRequest, Claims
from engine.state.held import HeldClaims
from engine.state.index import BeaconIndex
from rules.decision import Decision, decide
from rules.model import Campaign

ROLE = "trigger"

Clock = Callable[[], float]

_STEPS = ("decode", "resolve", "decide", "claim", "publish")
_BRIEFLY = 5.0  # seconds


class Grant(NamedTuple):
    """A campaign that passed every check for a detection, and the id its message would have."""

    heard: Heard
    beacon: IndexedBeacon
    campaign: Campaign
    decision: Decision
    owner: bytes


class Departure(NamedTuple):
    """A message on its way out, and what led to it."""

    message: Outgoing
    cause: Grant | DeadLetter


class Trigger:
    """What the partitions of one process share. `clock` gives epoch seconds."""

    def __init__(
        self,
        *,
        settings: Settings,
        topics: Topics,
        index: BeaconIndex,
        claims: Claims,
        publisher: Publisher,
        metrics: Metrics,
        clock: Clock = time.time,
    ) -> None:
        self.settings = settings
        self.topics = topics
        self.index = index
        self.claims = claims
        self.publisher = publisher
        self.metrics = metrics
        self.clock = clock
        self.composer = Composer(topics=topics, lifetime=settings.notification_lifetime)
        self.step_seconds = {step: metrics.batch_seconds.labels(ROLE, step) for step in _STEPS}

    def publishing_with(self, publisher: Publisher) -> "Trigger":
        """The same, which publishes with `publisher`; all else is shared."""
        other = copy.copy(self)
        other.publisher = publisher
        return other

    def for_partition(self, _partition: TopicPartition) -> "PartitionTrigger":
        """The handler for one assignment of one partition."""
        return PartitionTrigger(self)


class PartitionTrigger:
    """The data path for one partition, in order; implements BatchHandler."""

    def __init__(self, shared: Trigger) -> None:
        settings = shared.settings
        self._shared = shared
        self._held = HeldClaims(settings.held_devices)
        self._limit = DeadLetterLimit(
            share=settings.dead_letter_share, run=settings.dead_letter_run
        )

    async def handle(self, records: Records) -> None:
        """Decide every record, publish what follows. Raises what no retry can mend."""
        shared = self._shared
        with self._step("decode"):
            batch = decode_batch(records, shared.settings.path_loss_exponent)
        self._limit.note(len(records), batch.dead_positions)
        with self._step("resolve"):
            beacons = await shared.index.resolve({h.key for h in batch.heard}, len(batch.heard))
        with self._step("decide"):
            decisions = self._decide(batch.heard, beacons)
            outcome = Outcome(decisions)
            grants = _grants(batch.heard, beacons, decisions)
        with self._step("claim"):
            granted = await self._claim(grants, outcome)
        with self._step("publish"):
            await self._publish(granted, batch.dead)
        outcome.record(shared.metrics)
        shared.metrics.batch_size.observe(len(records))

    def _decide(
        self, heard: list[Heard], beacons: Mapping[BeaconKey, IndexedBeacon | None]
    ) -> list[Decision]:
        now = self._shared.clock()
        self._held.expire(now)
        max_age = self._shared.settings.max_detection_age
        held_by = self._held.of
        decisions = []
        for detection in heard:
            beacon = beacons[detection.key]
            decisions.append(
                decide(
                    None if beacon is None else beacon.target,
                    detection.zone,
                    detection.detected_at,
                    now,
                    max_age,
                    held_by(detection.message.device.udid),
                )
            )
        return decisions

    async def _claim(self, grants: list[Grant], outcome: Outcome) -> list[Grant]:
        """The grants that hold their claim; all claims of the batch in one round trip."""
        shared = self._shared
        capped = [grant for grant in grants if grant.campaign.delay > 0]
        if not capped:
            return grants
        requests = [_request(grant) for grant in capped]
        now = shared.clock()
        answers = await until_redis_answers(
            lambda: shared.claims.take(requests, now), shared.metrics.redis_errors, "claims"
        )
        denied = set()
        for grant, forbidden_by in zip(capped, answers, strict=True):
            self._hold(grant, forbidden_by, now)
            if forbidden_by is not None:
                denied.add(grant.owner)
                outcome.deny(grant.heard.record.offset, grant.decision)
        return [grant for grant in grants if grant.owner not in denied]

    def _hold(self, grant: Grant, forbidden_by: float | None, now: float) -> None:
        """Remember the claim. That of a connector campaign only briefly: its worker may give
        the claim back, or shorten it when the customer declines.

        A claim of a later time than the record that it forbids is not remembered: after a crash
        its owner may be among the records that follow, and has to ask for it again.
        """
        held_since = grant.heard.detected_at if forbidden_by is None else forbidden_by
        if held_since > grant.heard.detected_at:
            return
        until = now + _BRIEFLY if grant.campaign.format == "connector" else None
        self._held.hold(grant.heard.message.device.udid, grant.campaign.id, held_since, until)

    async def _publish(self, grants: list[Grant], dead: list[DeadLetter]) -> None:
        """Publish notifications, connector calls and dead letters, and count them."""
        if not grants and not dead:
            return
        shared = self._shared
        now = shared.clock()
        letters = shared.topics.dead_letters
        leaving = [
            Departure(shared.composer.compose(g.heard, g.beacon, g.campaign, g.owner, now), g)
            for g in grants
        ]
        leaving += [Departure(letter.outgoing(letters, now), letter) for letter in dead]
        gone: list[Departure] = []
        while True:
            try:
                await shared.publisher.publish([departure.message for departure in leaving])
                break
            except MessageTooLargeError as error:
                refused = {id(message) for message in error.messages}
                gone += [departure for departure in leaving if id(departure.message) not in refused]
                leaving = [
                    _replaced(departure, letters, now)
                    for departure in leaving
                    if id(departure.message) in refused
                ]
        self._count(gone + leaving)

    def _count(self, leaving: list[Departure]) -> None:
        metrics = self._shared.metrics
        now = self._shared.clock()
        formats: Counter[str] = Counter()
        for _, cause in leaving:
            if isinstance(cause, DeadLetter):
                metrics.dead_letters.labels(cause.record.topic, cause.reason).inc()
            else:
                formats[cause.campaign.format] += 1
                metrics.latency.observe(max(0.0, now - cause.heard.detected_at))
        for name, count in formats.items():
            metrics.notifications.labels(name).inc(count)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self._shared.step_seconds[name].observe(time.perf_counter() - begin)


def _grants(
    heard: list[Heard],
    beacons: Mapping[BeaconKey, IndexedBeacon | None],
    decisions: list[Decision],
) -> list[Grant]:
    grants = []
    for detection, decision in zip(heard, decisions, strict=True):
        if decision.granted:
            beacon = beacons[detection.key]
            assert beacon is not None  # noqa: S101  # an unknown beacon grants nothing
            grants += [
                Grant(detection, beacon, campaign, decision, notification_id(detection, campaign))
                for campaign in decision.granted
            ]
    return grants


def _request(grant: Grant) -> ClaimRequest:
    heard, campaign = grant.heard, grant.campaign
    return ClaimRequest(
        campaign.id, heard.message.device.udid, grant.owner, heard.detected_at, campaign.delay
    )


def _replaced(departure: Departure, topic: str, now: float) -> Departure:
    """For a message that its topic does not take: a dead letter of the record behind it.

    A dead letter that is itself too large leaves without its value, and if that is not enough
    without its key: its headers say where the original lies.
    """
    message, cause = departure
    size = len(message.value or b"")
    if isinstance(cause, DeadLetter):
        detail = f"{cause.reason}: {cause.detail}; left without its {size} bytes"
        letter = DeadLetter(cause.record, DeadLetterReason.TOO_LARGE, detail)
        key = None if message.value is None else message.key
        return Departure(letter.outgoing(topic, now)._replace(key=key, value=None), letter)
    detail = f"the message for {message.topic} would have {size} bytes"
    letter = DeadLetter(cause.heard.record, DeadLetterReason.TOO_LARGE, detail)
    return Departure(letter.outgoing(topic, now), letter)
