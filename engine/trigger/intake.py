"""The first loop of the trigger: makes every decision that needs only memory.

refuse early (compiled) -> decode -> locate -> resolve -> decide from memory
"""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from engine.formats.decoders import DetectionDecoder, OwnFormatDecoder
from engine.kafka.dead_letters import DeadLetter
from engine.kafka.detections import DecodedBatch, DecodedDetection
from engine.kafka.workers import Records
from engine.process.metrics import Metrics, StepTimer
from engine.redis.devices import DeviceLookup
from engine.trigger.claim_memory import RememberedClaims
from engine.trigger.decision_counts import DecisionCounter
from engine.trigger.decision_feed import DecisionFeed
from engine.trigger.grants import DecidedDetection, decide_from_memory, remembered_time_zone
from engine.trigger.locate import Located, locate
from engine.trigger.place_index import PlaceIndex, Places
from rules.model import Decision

if TYPE_CHECKING:
    from engine.trigger.partition import TriggerPartition
    from engine.trigger.refusal_filter import RefusalFilter, Sighting


class TakenIn(NamedTuple):
    """What is left of records: detections that may fire, and those that cannot be decoded.

    `moments` are those of visits that may fire; no record waits for them.
    """

    decided: list[DecidedDetection]
    dead_letters: list[DeadLetter]
    moments: list[DecidedDetection]


@dataclass(frozen=True, kw_only=True)
class Intake:
    """The parts that all partitions share. `clock` gives epoch seconds.

    `refusals` is None where nothing is compiled.
    """

    decoders: Mapping[str, DetectionDecoder]
    refusals: "RefusalFilter | None"
    index: PlaceIndex
    devices: DeviceLookup
    feed: DecisionFeed
    counter: DecisionCounter
    metrics: Metrics
    max_age: float
    clock: Callable[[], float] = time.time

    async def take_in(self, records: Records, partition: "TriggerPartition") -> TakenIn:
        """Decide records of one partition, in order.

        Raises TooManyDeadLettersError and VisitsTakenOverError.
        """
        remembered = partition.remembered
        with self._step("decode"):
            batch, refused, sightings = await self._decode(records, remembered)
        version = self.index.cache.version
        with self._step("resolve"):
            located = await locate(batch.messages, self.index)
            placed = (*located.detections, *located.left) if located.left else located.detections
            keys = {each.key for each in placed if each.key is not None}
            beacons = await self.index.resolve(keys, len(located.detections) + len(refused))
        with self._step("decide"):
            decided = self._decide(located, beacons, version, partition, refused)
        with self._step("visits"):
            moments = await partition.visits.follow(records, located, beacons, sightings)
        self.counter.count(refused)
        if located.left:
            left = self.metrics.records_skipped.labels("trigger", "geofence_exit")
            left.inc(len(located.left))
        self.metrics.batch_size.observe(len(records))
        return TakenIn(decided, batch.dead_letters, moments)

    async def _decode(
        self, records: Records, remembered: RememberedClaims
    ) -> "tuple[DecodedBatch[DecodedDetection], list[Decision], list[Sighting]]":
        """The decoded detections, the decisions of those that were refused before, and of these
        what visits need."""
        decoder = self.decoders[records[0].topic]
        if (
            self.refusals is None
            or not isinstance(decoder, OwnFormatDecoder)
            or self.feed.wants(len(records))
        ):
            return await decoder.decode(records), [], []
        others, refused, sightings = self.refusals.split(records, remembered, self.clock())
        batch = await decoder.decode(others, records)
        self.feed.note_undecoded(refused)
        return batch, refused, sightings

    def _decide(
        self,
        located: Located,
        beacons: Places,
        version: int,
        partition: "TriggerPartition",
        refused: list[Decision],
    ) -> list[DecidedDetection]:
        """The detections that may fire; the decisions about the others are added to `refused`."""
        now, max_age, remembered = self.clock(), self.max_age, partition.remembered
        remembered.forget_expired(now)
        decided = list[DecidedDetection]()
        firing_nothing = list(located.nowhere)
        begin = len(refused)
        refused += located.refusals
        fired: Collection[int] = ()
        for detection in located.detections:
            beacon = beacons.get(detection.key)
            if located.grids:
                fired = _fired_by_record(detection, decided)
            time_zone = None
            if beacon is not None and beacon.target.rules.quiet_hours is not None:
                time_zone = remembered_time_zone(detection, beacon, self.devices)
            decision = decide_from_memory(
                detection, beacon, remembered, now, max_age, fired, time_zone
            )
            if decision.granted:
                each = DecidedDetection(detection, beacon, decision, partition, version)
                if fired or time_zone is not None:
                    each.elsewhere, each.time_zone = fired, time_zone
                decided.append(each)
            else:
                refused.append(decision)
                firing_nothing.append(detection)
        self.feed.note_refused(firing_nothing, refused[begin:], beacons)
        return decided

    @cached_property
    def _step(self) -> StepTimer:
        return StepTimer(self.metrics, "trigger")


def _fired_by_record(
    detection: DecodedDetection, decided: list[DecidedDetection]
) -> Collection[int]:
    """The campaigns that the same position fires at geofences before this one."""
    last = decided[-1] if decided else None
    if last is None or last.detection.record is not detection.record:
        return ()
    if last.detection.index != detection.index:
        return ()
    return {*last.elsewhere, *(campaign.id for campaign in last.decision.granted)}
