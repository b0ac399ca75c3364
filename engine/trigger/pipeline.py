"""The way of a detection through the role `trigger`, from the record to the notification.

`take_in` makes the decisions that need only memory, for one partition's records in order.
Detections that may fire wait in the lane of their company, and `take_turn` handles the next ones of
a lane completely. Each step takes many detections at once; nothing awaits once per detection.

The queue of a partition is in partition.py, the queues of companies are in lanes.py, and
fair_turns.py decides which company is next.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from engine.kafka.dead_letters import DeadLetter
from engine.kafka.decoding import DecodedBatch
from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.kafka.partition_worker import Records
from engine.process.metrics import Metrics, StepTimer
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.beacon_index import BeaconIndex
from engine.trigger.claim_memory import RememberedClaims
from engine.trigger.claim_step import ClaimStep
from engine.trigger.compose import Composer
from engine.trigger.counts import counts_of_turn
from engine.trigger.decision_record import DecisionWatcher
from engine.trigger.decision_sums import DecisionSums
from engine.trigger.decode_step import DecodeStep
from engine.trigger.grants import Candidate, Grant, Granting, TakenIn
from engine.trigger.lanes import CompanyLane
from engine.trigger.publish_step import PublishStep
from rules.outcome import Decision

ROLE = "trigger"

# The bounds of one turn: the detections of other companies wait for so much work.
_GRANTS = 1024
_DETECTIONS = 1024

Beacons = Mapping[BeaconKey, IndexedBeacon | None]


@dataclass(frozen=True, kw_only=True)
class TriggerPipeline:
    """The steps and their objects; `clock` in epoch seconds, `sums` None if nothing is summed."""

    decode: DecodeStep
    granting: Granting
    index: BeaconIndex
    claims: ClaimStep
    composer: Composer
    publish: PublishStep
    metrics: Metrics
    watchers: Sequence[DecisionWatcher]
    sums: DecisionSums | None
    max_age: float
    clock: Callable[[], float] = time.time

    async def take_in(self, records: Records, remembered: RememberedClaims) -> TakenIn:
        """decode -> resolve -> decide. Raises TooManyDeadLettersError."""
        with self.step("decode"):
            batch, refused = await self.decode.decode(records, remembered)
        version = self.index.cache.version
        with self.step("resolve"):
            keys = {detection.key for detection in batch.messages}
            beacons = await self.index.resolve(keys, len(batch.messages) + len(refused))
        with self.step("decide"):
            taken = self._decide_from_memory(batch, beacons, version, remembered)
        taken.refused.extend(refused)
        return taken

    async def take_turn(self, lane: CompanyLane) -> None:
        """compose -> publish -> finish; before that decide -> claim, if no grants are left."""
        if not lane.grants:
            edited = await self._resolve_edited(lane)
            with self.step("decide"):
                grants, decisions = self._decide(lane, edited)
            with self.step("claim"):
                claimed, denied = await self.claims.take(grants, lane.remembered)
            for watcher in self.watchers:
                watcher.note_claims(claimed, denied)
            counts = counts_of_turn(decisions, denied)
            if self.sums is not None:
                self.sums.note_decided(counts)
                self.sums.note_claims(claimed, denied)
            lane.put_grants(claimed, counts)
        if lane.grants:
            with self.step("publish"):
                messages = await self.composer.compose_next(lane.grants, _GRANTS)
                await self.publish.publish(messages, lane.remembered)
        lane.finish(self.metrics)

    def _decide_from_memory(
        self,
        batch: DecodedBatch[DecodedDetection],
        beacons: Beacons,
        version: int,
        remembered: RememberedClaims,
    ) -> TakenIn:
        """Find the detections that may fire, by the beacons and claims in memory."""
        decision_on = self.granting.decider(self.clock(), self.max_age, remembered)
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
        """The current beacons of detections that have waited while something was edited."""
        version = self.index.cache.version
        if not lane.candidates or lane.candidates[0].cache_version == version:
            return {}  # later candidates have that version too
        upcoming = islice(lane.candidates, _DETECTIONS)
        keys = {each.detection.key for each in upcoming if each.cache_version != version}
        return await self.index.resolve(keys, 0) if keys else {}

    def _decide(self, lane: CompanyLane, edited: Beacons) -> tuple[list[Grant], list[Decision]]:
        """Decide waiting candidates until enough campaigns fire."""
        decision_on = self.granting.decider(self.clock(), self.max_age, lane.remembered)
        grants, decisions = list[Grant](), list[Decision]()
        while lane.candidates and len(grants) < _GRANTS and len(decisions) < _DETECTIONS:
            candidate = lane.candidates.popleft()
            detection = candidate.detection
            beacon = edited.get(detection.key, candidate.beacon)
            decisions.append(decision_on(detection, beacon))
            if beacon is not None:
                grants += self.granting.grants_of(detection, beacon, decisions[-1])
        return grants, decisions

    async def publish_dead_letters(self, letters: list[DeadLetter]) -> None:
        """Publish records that could not be decoded, and await the acknowledgements."""
        with self.step("publish"):
            await self.publish.letters.publish(letters)

    @cached_property
    def step(self) -> StepTimer:
        """A context that measures a step for the metrics."""
        return StepTimer(self.metrics, ROLE)
