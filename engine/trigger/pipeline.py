"""The way of a detection through the role `trigger`, from the record to the notification.

`take_in` makes the decisions that need only memory, for one partition's records in order.
Detections that may fire wait in the lane of their company, and `take_turn` handles the next ones of
a company's lanes completely. Each step takes many detections at once; nothing awaits once per
detection.

The queue of a partition is in partition.py, the queues of companies are in lanes.py,
company_turns.py gathers lanes into turns, and fair_turns.py decides which company is next.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice

from engine.kafka.dead_letters import DeadLetter
from engine.kafka.decoding import DecodedBatch
from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.kafka.partition_worker import Records
from engine.process.metrics import Metrics, StepTimer
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.beacon_index import BeaconIndex
from engine.trigger.claim_memory import RememberedClaims
from engine.trigger.claim_step import ClaimStep, GrantsOfLane
from engine.trigger.company_turns import OnEnded
from engine.trigger.compose import Composer
from engine.trigger.counts import counts_of_turn
from engine.trigger.decision_record import DecisionWatcher
from engine.trigger.decision_sums import DecisionSums
from engine.trigger.decode_step import DecodeStep
from engine.trigger.grants import Candidate, Grant, Granting, TakenIn
from engine.trigger.lanes import CompanyLane
from engine.trigger.publish_step import PublishStep
from engine.trigger.turn_messages import TurnMessages
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

    async def take_turn(self, lanes: Sequence[CompanyLane], ended: OnEnded) -> None:
        """compose -> publish -> finish for lanes of one company; before that decide -> claim for
        those that have no grants left."""
        if without := [lane for lane in lanes if not lane.grants]:
            await self._grant(without)
        sending = TurnMessages(lanes, self.metrics, ended)
        if any(lane.grants for lane in lanes):
            with self.step("publish"):
                await self._compose(lanes, sending)
                await self.publish.publish(sending)
        sending.finish_all()

    async def _grant(self, lanes: Sequence[CompanyLane]) -> None:
        decided, room = list[tuple[list[Grant], list[Decision]]](), _GRANTS
        for lane in lanes:
            edited = await self._resolve_edited(lane)
            with self.step("decide"):
                decided.append(self._decide(lane, edited, room))
            room -= len(decided[-1][0])
        with self.step("claim"):
            asked = zip(lanes, decided, strict=True)
            claims = await self.claims.take(
                [GrantsOfLane(grants, lane.remembered) for lane, (grants, _) in asked]
            )
        for lane, (_, decisions), (claimed, denied) in zip(lanes, decided, claims, strict=True):
            for watcher in self.watchers:
                watcher.note_claims(claimed, denied)
            counts = counts_of_turn(decisions, denied)
            if self.sums is not None:
                self.sums.note_decided(counts)
                self.sums.note_claims(claimed, denied)
            lane.put_grants(claimed, counts)

    async def _compose(self, lanes: Sequence[CompanyLane], sending: TurnMessages) -> None:
        """Compose the messages of the next grants of all lanes."""
        counts = [len(lane.grants) for lane in lanes]
        waiting = deque(chain.from_iterable(lane.grants for lane in lanes))
        messages = await self.composer.compose_next(waiting, _GRANTS)
        begin = 0
        for lane, count in zip(lanes, counts, strict=True):
            own = messages[begin : begin + count]
            begin += count
            lane.drop_grants(len(own))
            sending.add(lane, own)

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

    def _decide(
        self, lane: CompanyLane, edited: Beacons, most: int
    ) -> tuple[list[Grant], list[Decision]]:
        """Decide waiting candidates until `most` campaigns fire."""
        decision_on = self.granting.decider(self.clock(), self.max_age, lane.remembered)
        grants, decisions = list[Grant](), list[Decision]()
        while lane.candidates and len(grants) < most and len(decisions) < _DETECTIONS:
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
