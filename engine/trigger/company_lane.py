"""One company's detections on one partition: decided, claimed, composed, published, in order.

What belongs to different companies is independent of one another: a claim is of one campaign, and
a campaign of one company. So each company has a lane of its own on each partition, and the lanes
take turns. A turn is bounded in detections, grants and bytes, whatever the campaigns are.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple, Protocol, TypeAlias

from aiokafka import ConsumerRecord

from engine.kafka.dead_letters import DeadLetter, DeadLetterReason
from engine.kafka.detections import BeaconKey, DecodedDetection
from engine.kafka.publisher import MessageTooLargeError, Outgoing, Publisher
from engine.kafka.topics import Topics
from engine.process.failures import until_redis_answers
from engine.process.metrics import Metrics
from engine.redis.claim_settlement import ClaimSettler, Settlement
from engine.redis.claims import ClaimRequest, Claims
from engine.redis.devices import DeviceKey, DeviceLookup, Found, completed
from engine.trigger.batch_outcome import Outcome
from engine.trigger.beacon_cache import IndexedBeacon
from engine.trigger.beacon_index import BeaconIndex
from engine.trigger.compose import Composer, notification_id
from engine.trigger.fair_turns import Turns
from engine.trigger.held_claims import HeldClaims
from rules.decision import Decision, decide
from rules.model import Campaign

ROLE = "trigger"
DEAD_LETTERS = 0  # the lane of dead letters; companies count from 1

# A turn. The other companies' detections wait for so much work at most, and the event loop for
# a part of it.
_GRANTS = 256
_DETECTIONS = 1024
_BETWEEN_PAUSES = 64

# How long the claim of a connector campaign, or of one whose message was too large, is taken
# for granted: it may have been given back.
_BRIEFLY = 5.0

Clock = Callable[[], float]
Record: TypeAlias = "ConsumerRecord[bytes, bytes]"


class Waiting(NamedTuple):
    """A detection that may fire, its beacon, and the version of the cache that had it so."""

    heard: DecodedDetection
    beacon: IndexedBeacon | None
    version: int


class Grant(NamedTuple):
    """A campaign that passed every check for a detection, and the id its message would have."""

    heard: DecodedDetection
    beacon: IndexedBeacon
    campaign: Campaign
    decision: Decision
    owner: bytes

    @property
    def record(self) -> Record:
        """What it came from."""
        return self.heard.record


class Departure(NamedTuple):
    """A message on its way out, and what led to it."""

    message: Outgoing
    cause: Grant | DeadLetter


class Shared(Protocol):
    """What the lanes of one process share."""

    @property
    def topics(self) -> Topics: ...
    @property
    def index(self) -> BeaconIndex: ...
    @property
    def claims(self) -> Claims: ...
    @property
    def settler(self) -> ClaimSettler: ...
    @property
    def devices(self) -> DeviceLookup: ...
    @property
    def publisher(self) -> Publisher: ...
    @property
    def composer(self) -> Composer: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def turns(self) -> Turns: ...
    @property
    def turn_bytes(self) -> int: ...
    @property
    def max_age(self) -> float: ...
    def step_seconds(self, name: str) -> Callable[[float], None]: ...


class Lane:
    """Runs while something waits in it; `on_finished` is told the records that are done with.

    A lane's records are done with in their order.
    """

    def __init__(
        self,
        company: int,
        *,
        shared: Shared,
        held: HeldClaims,
        on_finished: Callable[[list[Record]], None],
    ) -> None:
        self._company = company
        self._shared = shared
        self._held = held
        self._on_finished = on_finished
        self._unfinished: deque[Record] = deque()
        self._waiting: deque[Waiting] = deque()
        self._leaving: deque[Grant | DeadLetter] = deque()
        self._outcome: Outcome | None = None

    def add(self, waiting: Waiting) -> None:
        """A detection that may fire campaigns of the company."""
        self._unfinished.append(waiting.heard.record)
        self._waiting.append(waiting)

    def add_letter(self, letter: DeadLetter) -> None:
        """A record that goes aside."""
        self._unfinished.append(letter.record)
        self._leaving.append(letter)

    @property
    def is_empty(self) -> bool:
        """Whether all that was added is done with."""
        return not self._unfinished

    async def run(self) -> None:
        """Until nothing waits. Raises what no retry can mend."""
        while self._unfinished:
            async with self._shared.turns.turn(self._company):
                await self._turn()

    async def _turn(self) -> None:
        if not self._leaving:
            beacons = await self._resolve()
            with self._step("decide"):
                grants, outcome = self._decide(beacons)
            with self._step("claim"):
                self._leaving.extend(await self._claim(grants, outcome))
            self._outcome = outcome
        if self._leaving:
            with self._step("publish"):
                await self._publish(await self._compose())
        self._finish()

    async def _resolve(self) -> Mapping[BeaconKey, IndexedBeacon | None]:
        """The beacons of what has waited while something was edited, as they are now."""
        index = self._shared.index
        version = index.cache.version
        upcoming = islice(self._waiting, _DETECTIONS)
        keys = {each.heard.key for each in upcoming if each.version != version}
        return await index.resolve(keys, 0) if keys else {}

    def _decide(
        self, beacons: Mapping[BeaconKey, IndexedBeacon | None]
    ) -> tuple[list[Grant], Outcome]:
        """Decide detections until enough campaigns fire."""
        shared = self._shared
        now = shared.clock()
        self._held.expire(now)
        grants: list[Grant] = []
        decisions: list[Decision] = []
        waiting = self._waiting
        while waiting and len(grants) < _GRANTS and len(decisions) < _DETECTIONS:
            heard, beacon, _ = waiting.popleft()
            beacon = beacons.get(heard.key, beacon) if beacons else beacon
            decision = decide(
                None if beacon is None else beacon.target,
                heard.zone,
                heard.detected_at,
                now,
                shared.max_age,
                self._held.of(heard.message.device.udid),
            )
            decisions.append(decision)
            if beacon is not None:
                grants += [
                    Grant(heard, beacon, campaign, decision, notification_id(heard, campaign))
                    for campaign in decision.granted
                ]
        return grants, Outcome(decisions)

    async def _claim(self, grants: list[Grant], outcome: Outcome) -> list[Grant]:
        """The grants that hold their claim; all claims of the turn in one round trip."""
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
                outcome.deny(grant.record.offset, grant.decision)
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

    async def _compose(self) -> list[Departure]:
        """Messages of what leaves next, up to the bytes of a turn, or one if that is more."""
        shared = self._shared
        known = await self._devices()
        now = shared.clock()
        leaving, batch, size = self._leaving, list[Departure](), 0
        while leaving and size < shared.turn_bytes and len(batch) < _GRANTS:
            cause = leaving.popleft()
            message = _message(cause, known, shared, now)
            batch.append(Departure(message, cause))
            size += len(message.value or b"") + len(message.key or b"")
            if len(batch) % _BETWEEN_PAUSES == 0:
                await asyncio.sleep(0)
        return batch

    async def _devices(self) -> Found:
        """What the catalog knows of the devices whose notifications leave in this turn."""
        keys: set[DeviceKey] = set()
        size = 0
        for cause in islice(self._leaving, _GRANTS):
            if isinstance(cause, Grant) and cause.campaign.format != "connector":
                keys.add(_device_key(cause))
                size += len(cause.campaign.content or "")
                if size > self._shared.turn_bytes:
                    break
        return await self._shared.devices.find(keys) if keys else {}

    async def _publish(self, leaving: list[Departure]) -> None:
        """Publish, acknowledged by the brokers, and count."""
        shared = self._shared
        letters, now = shared.topics.dead_letters, shared.clock()
        gone: list[Departure] = []
        while True:
            try:
                await shared.publisher.publish([departure.message for departure in leaving])
                break
            except MessageTooLargeError as error:
                refused = {id(message) for message in error.messages}
                gone += [departure for departure in leaving if id(departure.message) not in refused]
                leaving = [d for d in leaving if id(d.message) in refused]
                await self._give_back([d.cause for d in leaving if isinstance(d.cause, Grant)])
                leaving = [_replaced(departure, letters, now) for departure in leaving]
        self._count(gone + leaving)

    async def _give_back(self, grants: list[Grant]) -> None:
        """The claims of campaigns whose message cannot leave: what is sent later may have them.

        This process remembers them for a while, so that a device that stays does not make a
        dead letter a second.
        """
        shared = self._shared
        until = shared.clock() + _BRIEFLY
        capped = [grant for grant in grants if grant.campaign.delay > 0]
        for grant in capped:
            udid, at = grant.heard.message.device.udid, grant.heard.detected_at
            self._held.hold(udid, grant.campaign.id, at, until)
        settlements = [_returned(grant) for grant in capped]
        await until_redis_answers(
            lambda: shared.settler.settle(settlements), shared.metrics.redis_errors, "claims"
        )

    def _finish(self) -> None:
        """All before what is next is done with."""
        unfinished = self._unfinished
        if self._outcome is not None and not self._leaving:
            self._outcome.record(self._shared.metrics)
            self._outcome = None
        if self._leaving:
            following = self._leaving[0].record.offset
        elif self._waiting:
            following = self._waiting[0].heard.record.offset
        else:
            following = unfinished[-1].offset + 1
        finished = []
        while unfinished and unfinished[0].offset < following:
            finished.append(unfinished.popleft())
        if finished:
            self._on_finished(finished)

    def _count(self, leaving: list[Departure]) -> None:
        metrics = self._shared.metrics
        now = self._shared.clock()
        formats: Counter[str] = Counter()
        for _, cause in leaving:
            if isinstance(cause, DeadLetter):
                metrics.dead_letters.labels(cause.record.topic, cause.reason).inc()
                continue
            formats[cause.campaign.format] += 1
            if cause.campaign.format != "connector":
                metrics.latency.observe(max(0.0, now - cause.heard.detected_at))
        metrics.connector_handovers.inc(formats.pop("connector", 0))
        for name, count in formats.items():
            metrics.notifications.labels(name).inc(count)

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self._shared.step_seconds(name)(time.perf_counter() - begin)


def _request(grant: Grant) -> ClaimRequest:
    heard, campaign = grant.heard, grant.campaign
    return ClaimRequest(
        campaign.id, heard.message.device.udid, grant.owner, heard.detected_at, campaign.delay
    )


def _returned(grant: Grant) -> Settlement:
    heard, campaign = grant.heard, grant.campaign
    return Settlement(
        campaign_id=campaign.id,
        udid=heard.message.device.udid,
        owner=grant.owner,
        detected_at=heard.detected_at,
        delay=campaign.delay,
        keep=0,
    )


def _device_key(grant: Grant) -> DeviceKey:
    return DeviceKey(grant.beacon.company_reference.id, grant.heard.message.device.udid)


def _message(cause: Grant | DeadLetter, known: Found, shared: Shared, now: float) -> Outgoing:
    if isinstance(cause, DeadLetter):
        return cause.outgoing(shared.topics.dead_letters, now)
    device = completed(cause.heard.message.device, known.get(_device_key(cause)))
    return shared.composer.compose(
        cause.heard, cause.beacon, cause.campaign, cause.owner, device, now
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
    letter = DeadLetter(cause.record, DeadLetterReason.TOO_LARGE, detail)
    return Departure(letter.outgoing(topic, now), letter)
