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


def tail_with(watcher: Watcher) -> DecisionTail:
    store: Any = None  # nothing is written before `run`
    tail = DecisionTail(store=store, metrics=Metrics(), clock=lambda: 0.0)
    tail._serve({"one": watcher})
    return tail


def test_detections_are_decoded_for_a_watcher_that_has_room():
    """The decisions of the others are counted for it."""
    detection, decision, beacon = Edited().decided()
    watcher = Watcher(TailFilter(1, None), beat_at=0.0)
    tail = tail_with(watcher)
    while tail.wants(1000):
        tail.note_refused([detection], [decision], {KEY: beacon})
    assert not watcher.room
    tail.note_undecoded([decision] * 1000)
    assert watcher.left_out == 1000
    assert not DecisionTail(store=tail._store, metrics=Metrics()).wants(1000)


def test_only_the_beacons_of_the_batch_are_looked_up():
    for company, shown in ((None, 1), (1, 1), (2, 0)):
        watcher = Watcher(TailFilter(1, company), beat_at=0.0)
        tail = tail_with(watcher)
        detection, decision, beacon = Edited().decided()
        tail.note_refused([detection], [decision], AllKnownBeacons({KEY: beacon}))
        assert len(watcher.gathered) == shown
