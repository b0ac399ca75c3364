"""The way of a detection through the role `trigger`, from the record to the notification.

`take_in` goes as far as memory decides, for one partition's records in their order. What may fire
waits in the lane of its company, and `take_turn` takes the next of a lane to the end. Each step
takes many detections at once; nothing awaits once per detection.

Around it: the queues of a partition (partition.py), of a company (lanes.py), and whose turn it is
(fair_turns.py).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from engine.kafka.dead_letters import DeadLetter, DeadLetterPublisher
from engine.kafka.decoding import DecodedBatch
from engine.kafka.detection_decoder import DetectionDecoder
from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.kafka.partition_worker import Records
from engine.process.metrics import Metrics, StepTimer
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.beacon_index import BeaconIndex
from engine.trigger.claim_memory import RememberedClaims
from engine.trigger.claim_step import ClaimStep
from engine.trigger.compose import Composer
from engine.trigger.counts import DecisionCounts, count_sent
from engine.trigger.decision_record import DecisionWatcher
from engine.trigger.grants import Candidate, Grant, GrantMessage, TakenIn, decider, grants_of
from engine.trigger.lanes import CompanyLane
from rules.decision import Decision

ROLE = "trigger"

# The most of one turn: so much work the other companies' detections wait for.
_GRANTS = 1024
_DETECTIONS = 1024

Beacons = Mapping[BeaconKey, IndexedBeacon | None]


@dataclass(frozen=True, kw_only=True)
class TriggerPipeline:
    """The steps, and what they work with; a decoder a topic. `clock` gives epoch seconds."""

    index: BeaconIndex
    claims: ClaimStep
    composer: Composer
    publisher: DeadLetterPublisher
    decoders: Mapping[str, DetectionDecoder]
    metrics: Metrics
    watchers: Sequence[DecisionWatcher]
    max_age: float
    clock: Callable[[], float] = time.time

    async def take_in(self, records: Records, remembered: RememberedClaims) -> TakenIn:
        """decode -> resolve -> decide. Raises TooManyDeadLettersError."""
        with self.step("decode"):
            batch = await self.decoders[records[0].topic].decode(records)
        version = self.index.cache.version
        with self.step("resolve"):
            keys = {detection.key for detection in batch.messages}
            beacons = await self.index.resolve(keys, len(batch.messages))
        with self.step("decide"):
            return self._decide_from_memory(batch, beacons, version, remembered)

    async def take_turn(self, lane: CompanyLane) -> None:
        """decide -> claim, if no grant is left from before; compose -> publish -> finished."""
        if not lane.grants:
            edited = await self._resolve_edited(lane)
            with self.step("decide"):
                grants, decisions = self._decide(lane, edited)
            with self.step("claim"):
                claimed, denied = await self.claims.take(grants, lane.remembered)
            for watcher in self.watchers:
                watcher.note_claims(claimed, denied)
            # (A record may hold several detections: the offset does not tell them apart.)
            refusals = [(id(grant.detection), grant.decision) for grant in denied]
            lane.put_grants(claimed, DecisionCounts(decisions, refusals))
        if lane.grants:
            with self.step("publish"):
                messages = await self.composer.compose_next(lane.grants, _GRANTS)
                await self._publish(messages, lane.remembered)
        lane.finish(self.metrics)

    def _decide_from_memory(
        self,
        batch: DecodedBatch[DecodedDetection],
        beacons: Beacons,
        version: int,
        remembered: RememberedClaims,
    ) -> TakenIn:
        """Which detections may fire, by what the process knows already."""
        decision_on = decider(self.clock(), self.max_age, remembered)
        candidates, refused = list[Candidate](), list[Decision]()
        firing_nothing = list[DecodedDetection]()
        for detection in batch.messages:
            beacon = beacons[detection.key]
            decision = decision_on(detection, beacon)
            if decision.granted and beacon is not None:
                candidates.append(Candidate(detection, beacon, version))
            else:
                refused.append(decision)
                firing_nothing.append(detection)
        for watcher in self.watchers:
            watcher.note_refused(firing_nothing, refused, beacons)
        return TakenIn(candidates, batch.dead_letters, refused)

    async def _resolve_edited(self, lane: CompanyLane) -> Beacons:
        """The beacons of what has waited while something was edited, as they are now."""
        version = self.index.cache.version
        if not lane.candidates or lane.candidates[0].cache_version == version:
            return {}  # those behind it came later
        upcoming = islice(lane.candidates, _DETECTIONS)
        keys = {each.detection.key for each in upcoming if each.cache_version != version}
        return await self.index.resolve(keys, 0) if keys else {}

    def _decide(self, lane: CompanyLane, edited: Beacons) -> tuple[list[Grant], list[Decision]]:
        """Decide candidates for certain, until enough campaigns fire."""
        decision_on = decider(self.clock(), self.max_age, lane.remembered)
        grants, decisions = list[Grant](), list[Decision]()
        while lane.candidates and len(grants) < _GRANTS and len(decisions) < _DETECTIONS:
            candidate = lane.candidates.popleft()
            detection = candidate.detection
            beacon = edited.get(detection.key, candidate.beacon)
            decisions.append(decision_on(detection, beacon))
            if beacon is not None:
                grants += grants_of(detection, beacon, decisions[-1])
        return grants, decisions

    async def _publish(self, messages: list[GrantMessage], remembered: RememberedClaims) -> None:
        """Publish, acknowledged by the brokers, and count. What is refused keeps no claim."""
        refused = await self.publisher.publish_or_dead_letter(messages)
        if refused:
            await self.claims.give_back([each.grant for each in refused], remembered)
            for each in refused:
                if each.span is not None:
                    each.span.end("too_large")
            without = {id(each) for each in refused}
            messages = [each for each in messages if id(each) not in without]
        for each in messages:
            if each.span is not None:
                each.span.end("published")
        count_sent(self.metrics, [each.grant for each in messages], self.clock())

    async def publish_dead_letters(self, letters: list[DeadLetter]) -> None:
        """What could not be decoded, acknowledged by the brokers."""
        with self.step("publish"):
            await self.publisher.publish(letters)

    @cached_property
    def step(self) -> StepTimer:
        """Around a step: its seconds, in the metrics."""
        return StepTimer(self.metrics, ROLE)
