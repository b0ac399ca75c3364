"""Explains a detection from the data that a trigger uses: the index, and the device's claims."""

from typing import NamedTuple

from engine.kafka.detections import PlaceKey
from engine.redis.claims import ClaimReader
from engine.redis.devices import DeviceKey
from engine.trigger.place_cache import IndexedPlace
from engine.trigger.place_index import PlaceIndex
from rules.explanation import DeviceHistory, Explanation, Question, awake, explain
from rules.model import Zone


class SupposedDetection(NamedTuple):
    """The detection of a question; times in epoch seconds.

    Without `zone` the device is just near enough for a beacon. Without `udid` the device has
    received nothing yet. `time_zone` is the device's, None for the catalog's. `is_now` says that no
    other time was given: then campaigns that are asleep in the index stay asleep.
    """

    key: PlaceKey
    udid: str | None
    zone: Zone | None
    detected_at: float
    decided_at: float
    is_now: bool
    time_zone: str | None = None


class ExplainedDetection(NamedTuple):
    """The answer, with the place of the detection, if the index has it."""

    beacon: IndexedPlace | None
    question: Question
    explanation: Explanation


class Explainer:
    """Reads from Redis and writes nothing. `max_age` in seconds."""

    def __init__(self, *, index: PlaceIndex, claims: ClaimReader, max_age: float) -> None:
        self._index = index
        self._claims = claims
        self._max_age = max_age

    async def explain(self, supposed: SupposedDetection) -> ExplainedDetection:
        """Explain a detection. Raises IndexNotBuiltError, RedisError, OSError or TimeoutError."""
        beacon = await self._index.look_up(supposed.key)
        history, zone = DeviceHistory(), supposed.zone
        if beacon is not None and supposed.udid is not None:
            device = DeviceKey(beacon.company_reference.id, supposed.udid)
            history = await self._claims.history(device, [each.id for each in beacon.campaigns])
        target = None if beacon is None else beacon.target
        if zone is None:
            zone = Zone.IMMEDIATE if target is None or target.reach is None else target.reach
        if target is not None and not supposed.is_now:
            target = awake(target)
        question = Question(
            zone,
            supposed.detected_at,
            supposed.decided_at,
            self._max_age,
            history.claims,
            supposed.key.kind,
            history.sent,
            supposed.time_zone or history.time_zone,
        )
        return ExplainedDetection(beacon, question, explain(target, question))
