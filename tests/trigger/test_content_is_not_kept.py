"""An edited campaign is freed, though the decisions about it are remembered.

A tenant may edit a campaign of 900 kB every second: what keeps decisions would keep every version.
"""

import gc
import weakref
from typing import Any

import pytest

from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.kafka.messages import Detection, ReceivedDevice
from engine.process.metrics import Metrics
from engine.trigger.claim_memory import ClaimMemory
from engine.trigger.decision_feed import DecisionFeed
from engine.trigger.grants import decide_from_memory
from engine.trigger.place_cache import IndexedPlace
from rules.model import Decision, Reason, Zone
from tests.kafka.records import record
from tests.rules.records import UUID, beacon, campaign, epoch

AT = epoch("2026-11-20T10:00:00Z")
KEY = BeaconKey(UUID, 1, 2)


class Content(str):
    """Text that can be seen to be freed."""


class Edited:
    """Decisions about one device at a beacon whose campaign is edited before each."""

    def __init__(self) -> None:
        self.contents: list[weakref.ref[Content]] = []
        self._remembered = ClaimMemory(100).for_assignment()
        self._remembered.remember("phone", [campaign(id=1, delay=60)], AT - 1, AT)

    def decided(self) -> tuple[DecodedDetection, Decision, IndexedPlace]:
        content = Content("x" * 100)
        self.contents.append(weakref.ref(content))
        made = IndexedPlace(beacon(), [campaign(id=1, delay=60, content=content)], None)
        message = Detection(uuid=UUID, major=1, minor=2, device=ReceivedDevice(udid="phone"))
        detection = DecodedDetection(record(b""), message, KEY, Zone.NEAR, AT)
        decision = decide_from_memory(detection, made, self._remembered, AT, 300.0)
        assert decision.reason is Reason.THROTTLED
        return detection, decision, made

    @property
    def kept(self) -> int:
        gc.collect()
        return sum(content() is not None for content in self.contents)


@pytest.fixture
def edited() -> Edited:
    return Edited()


def test_by_those_who_note_decisions_of_devices(edited: Edited) -> None:
    store: Any = object()  # nothing is written before `run`
    notes = DecisionFeed(tail=store, store=store, metrics=Metrics(), clock=lambda: AT)
    for _ in range(3):
        detection, decision, made = edited.decided()
        notes.note_refused([detection], [decision], {KEY: made})
    del decision, made
    assert edited.kept == 0


def test_by_those_who_remember_that_a_device_is_throttled(edited: Edited) -> None:
    for _ in range(3):
        edited.decided()
    assert edited.kept == 0
