"""The live view looks up the beacons of the batch alone, however many the process knows."""

from typing import Any

from engine.kafka.detections import BeaconKey
from engine.process.metrics import Metrics
from engine.redis.tail_store import TailFilter
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.decision_tail import DecisionTail
from engine.trigger.watchers import Watcher
from tests.unit.engine.test_content_is_not_kept import KEY, Edited


class AllKnownBeacons(dict[BeaconKey, IndexedBeacon | None]):
    """As the trigger passes it on: all that is cached. It may be looked into, not gone through."""

    def _iterated(self, *_: object) -> Any:
        raise AssertionError("the tail goes through every beacon that the process knows")

    __iter__ = keys = values = items = _iterated


def test_only_the_beacons_of_the_batch_are_looked_up():
    for company, shown in ((None, 1), (1, 1), (2, 0)):
        store: Any = None  # nothing is written before `run`
        tail = DecisionTail(store=store, metrics=Metrics(), clock=lambda: 0.0)
        watcher = Watcher(TailFilter(1, company), beat_at=0.0)
        tail._serve({"one": watcher})
        detection, decision, beacon = Edited().decided()
        tail.note_refused([detection], [decision], AllKnownBeacons({KEY: beacon}))
        assert len(watcher.gathered) == shown
