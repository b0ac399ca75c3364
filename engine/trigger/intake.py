"""The first loop of the trigger: makes every decision that needs only memory.

decide early (compiled) -> decode the others -> locate -> resolve -> decide from memory
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from engine.formats.decoders import DetectionDecoder, OwnFormatDecoder
from engine.kafka.dead_letters import DeadLetter
from engine.kafka.detections import DecodedBatch, DecodedDetection
from engine.kafka.workers import Records
from engine.process.metrics import Metrics, StepTimer
from engine.redis.devices import DeviceLookup
from engine.trigger.decision_counts import DecisionCounter
from engine.trigger.decision_feed import DecisionFeed
from engine.trigger.grants import (
    DecidedDetection,
    at_place,
    decide_from_memory,
    remembered_time_zone,
)
from engine.trigger.locate import Located, locate
from engine.trigger.place_index import PlaceIndex, Places
from rules.model import Decision

if TYPE_CHECKING:
    from engine.trigger.partition import TriggerPartition
    from engine.trigger.record_filter import FilteredBatch, RecordFilter


_OFFSET = attrgetter("record.offset")


class IntakeResult(NamedTuple):
    """What is left of records: detections that may fire, and those that cannot be decoded.

    `moments` are those of visits that may fire; no record waits for them.
    """

    decided: list[DecidedDetection]
    dead_letters: list[DeadLetter]
    moments: list[DecidedDetection]


@dataclass(frozen=True, kw_only=True)
class Intake:
    """The parts that all partitions share. `clock` gives epoch seconds.

    `filter` is None where nothing is compiled.
    """

    decoders: Mapping[str, DetectionDecoder]
    filter: "RecordFilter | None"
    index: PlaceIndex
    devices: DeviceLookup
    feed: DecisionFeed
    counter: DecisionCounter
    metrics: Metrics
    max_age: float
    clock: Callable[[], float] = time.time

    async def take_in(self, records: Records, partition: "TriggerPartition") -> IntakeResult:
        """Decide records of one partition, in order.

        Raises TooManyDeadLettersError and VisitsTakenOverError.
        """
        version = self.index.cache.version
        with self._step("decode"):
            batch, filtered = await self._decode(records, partition, version)
        refused, decided, sightings = filtered
        with self._step("resolve"):
            located = await locate(batch.messages, self.index)
            placed = (*located.detections, *located.left) if located.left else located.detections
            keys = {each.key for each in placed if each.key is not None}
            sought = len(located.detections) + len(refused) + len(decided)
            beacons = await self.index.resolve(keys, sought)
        with self._step("decide"):
            others = self._decide(located, beacons, version, partition, refused)
            if others:
                decided = sorted(chain(decided, others), key=_OFFSET)
        with self._step("visits"):
            moments = await partition.visits.follow(records, located, beacons, sightings)
        if refused:
            self.counter.count(refused)
        if located.left:
            left = self.metrics.records_skipped.labels("trigger", "geofence_exit")
            left.inc(len(located.left))
        self.metrics.batch_size.observe(len(records))
        return IntakeResult(decided, batch.dead_letters, moments)

    async def _decode(
        self, records: Records, partition: "TriggerPartition", version: int
    ) -> "tuple[DecodedBatch[DecodedDetection], FilteredBatch]":
        """The decoded detections, and those that were decided without it."""
        decoder, wanted = self.decoders[records[0].topic], self.feed.wants()
        if self.filter is None or wanted is None or not isinstance(decoder, OwnFormatDecoder):
            return await decoder.decode(records), ([], [], [])
        others, filtered = self.filter.split(records[wanted:], partition, version, self.clock())
        batch = await decoder.decode(records[:wanted] + others, records)
        self.feed.note_undecoded(filtered[0])
        return batch, filtered

    def _decide(
        self,
        located: Located,
        beacons: Places,
        version: int,
        partition: "TriggerPartition",
        refused: list[Decision],
    ) -> list[DecidedDetection]:
        """The detections that may fire; the decisions about the others are added to `refused`."""
        now, remembered = self.clock(), partition.remembered
        remembered.forget_expired(now)
        decided, firing_nothing = list[DecidedDetection](), list[DecidedDetection]()
        for detection in located.detections:
            each = at_place(detection, beacons.get(detection.key))
            if located.grids:
                each.elsewhere = _fired_by_record(each, decided)
            if each.beacon is not None:
                rules = each.beacon.target.rules
                each.time_zone = remembered_time_zone(each.device, rules, self.devices)
            each.decision = decide_from_memory(each, remembered, now, self.max_age)
            if each.decision.granted:
                each.partition, each.version = partition, version
                decided.append(each)
            else:
                firing_nothing.append(each)
        for detection, decision in zip(located.nowhere, located.refusals, strict=True):
            each = at_place(detection, None)
            each.decision = decision
            firing_nothing.append(each)
        refused += [each.decision for each in firing_nothing]
        self.feed.note_refused(firing_nothing)
        return decided

    @cached_property
    def _step(self) -> StepTimer:
        return StepTimer(self.metrics, "trigger")


def _fired_by_record(one: DecidedDetection, decided: list[DecidedDetection]) -> Collection[int]:
    """The campaigns that the same position fires at geofences before this one."""
    last = decided[-1] if decided else None
    if last is None or last.record is not one.record or last.index != one.index:
        return ()
    return {*last.elsewhere, *(campaign.id for campaign in last.decision.granted)}
