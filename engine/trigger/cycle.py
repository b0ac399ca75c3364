"""The second loop of the trigger: claims, composes and publishes for the detections that may fire.

    take some of each waiting company -> decide again -> claim -> compose -> hand to the producer

A cycle takes detections of all partitions and companies together, so it is as large as the traffic:
one call of Redis, one look-up of devices, one list for the producer. Companies take turns within
its bounds. It does not wait for acknowledgements: these finish the records in their partitions.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from engine.kafka.dead_letters import DeadLetterPublisher
from engine.process.failures import retry
from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics, StepTimer
from engine.redis.claims import (
    REQUEST_BYTES,
    Answer,
    CapPlace,
    Claims,
    ClaimUpdate,
    DeviceRequests,
    pack_caps,
)
from engine.redis.devices import DeviceLookup
from engine.trigger.claim_memory import READ, claim_keys
from engine.trigger.decision_counts import DecisionCounter
from engine.trigger.decision_feed import DecisionFeed
from engine.trigger.grants import DecidedDetection, decide_from_memory
from engine.trigger.message import Message, MessageWriter
from engine.trigger.place_index import PlaceIndex
from rules.model import Cap

if TYPE_CHECKING:
    from engine.trigger.partition import TriggerPartition

ROLE = "trigger"

# The bounds of one cycle in campaigns; a company gets its share of them, but at least so many.
_MOST_CAMPAIGNS = 2048
_LEAST_SHARE = 16
# A partition with messages in so many unfinished sends waits: a leader does not answer.
_MOST_SENDS = 4
_MOST_READ = 256  # devices whose claims are all read in one cycle
_MOST_CYCLES = 2  # that run at once, for different devices
_NO_CLAIMS: dict[int, float] = {}


@dataclass(kw_only=True, eq=False)
class Cycle:
    """Runs while detections wait. `cycle_bytes` bounds the messages of a cycle, and four times as
    many those that are not acknowledged. `clock` in epoch seconds.

    With transactions each partition has a cycle with its own `letters`; else the process has one.
    """

    index: PlaceIndex
    claims: Claims
    devices: DeviceLookup
    writer: MessageWriter
    letters: DeadLetterPublisher
    feed: DecisionFeed
    counter: DecisionCounter
    metrics: Metrics
    max_age: float
    cycle_bytes: int
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self.step = StepTimer(self.metrics, ROLE)
        self.failure: BaseException | None = None
        self._queues: dict[int, deque[DecidedDetection]] = {}  # by company, in rotation
        self._partitions: set[TriggerPartition] = set()
        self._unacknowledged = 0
        self._room = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._busy: set[str] = set()  # devices of the cycles whose messages are not composed yet
        self._behind: list[DecidedDetection] = []  # later detections of these
        self._sends: set[asyncio.Task[None]] = set()

    def join(self, partition: "TriggerPartition") -> None:
        """A partition begins."""
        self._partitions.add(partition)

    async def leave(self, partition: "TriggerPartition") -> None:
        """A partition was abandoned: what waits of it is dropped when it is met."""
        self._partitions.discard(partition)
        if self._partitions:
            return
        tasks = self._running | self._sends
        # Before the await: a partition that joins meanwhile begins with an empty cycle.
        self._running, self._sends = set(), set()
        self._queues.clear()
        self._busy.clear()
        self._behind.clear()
        self._unacknowledged = 0
        await cancel(tasks)

    def put(self, decided: Iterable[DecidedDetection]) -> None:
        """Queue detections that may fire."""
        for each in decided:
            company = each.decision.company_id
            each.make_plan()
            queue = self._queues.get(company)
            if queue is None:
                queue = self._queues[company] = deque()
            queue.append(each)
        if len(self._running) < _MOST_CYCLES and self._queues and self.failure is None:
            task = asyncio.create_task(self._run(), name="cycle")
            self._running.add(task)
            task.add_done_callback(self._note_end)

    async def _run(self) -> None:
        while self._queues:
            if self._unacknowledged >= 4 * self.cycle_bytes:
                self._room.clear()
                await self._room.wait()
                continue
            taken = self._take()
            if taken:
                await self._handle(taken)
            await asyncio.sleep(0)

    def _return(self, decided: Sequence[DecidedDetection]) -> None:
        """Put detections back to where they were taken from."""
        for each in reversed(decided):
            self._queues.setdefault(each.decision.company_id, deque()).appendleft(each)

    def _take(self) -> list[DecidedDetection]:
        """The next detections of the waiting companies, in rotation."""
        taken: list[DecidedDetection] = []
        room, room_bytes, waiting = _MOST_CAMPAIGNS, self.cycle_bytes, len(self._queues)
        share = max(_LEAST_SHARE, room // waiting)
        share_bytes = max(1, room_bytes // waiting)
        for company in list(self._queues):
            queue = self._queues.pop(company)
            campaigns = size = 0
            while queue and (
                (campaigns < share and size < share_bytes)
                # What one detection fires is claimed together, unless it fills a cycle by itself.
                or (
                    campaigns < _MOST_CAMPAIGNS
                    and size < self.cycle_bytes
                    and taken
                    and queue[0].is_of(taken[-1])
                )
            ):
                decided = queue.popleft()
                partition = decided.partition
                if partition.is_abandoned:
                    continue
                if partition.unfinished_sends >= _MOST_SENDS:
                    partition.held_back.append(decided)
                    continue
                if decided.device.udid in self._busy:
                    self._behind.append(decided)
                    continue
                taken.append(decided)
                campaigns += len(decided.plan.campaigns)
                size += decided.plan.size
            if queue:
                self._queues[company] = queue  # behind the others
            room, room_bytes = room - campaigns, room_bytes - size
            if room <= 0 or room_bytes <= 0:
                break
        return taken

    async def _handle(self, taken: list[DecidedDetection]) -> None:
        """Claim, compose and publish for these detections.

        Their devices are busy until the messages are composed, so that these keep their order.
        """
        devices = {each.device.udid for each in taken}
        self._busy |= devices
        changed = await self._resolve_edited(taken)
        changed |= await self._find_time_zones(taken)
        with self.step("decide"):
            claiming, requests = self._prepare(taken, changed)
        if claiming:
            with self.step("claim"):
                await self._claim(claiming, requests)
        taken = [each for each in taken if not each.partition.is_abandoned]
        self.counter.count_claimed(taken)
        self.feed.note_claims(taken)
        sending = [each for each in taken if each.decision.granted]
        if len(sending) < len(taken):
            _finish([each for each in taken if not each.decision.granted])
        if sending:
            await self._find_devices(sending)
            self._send(sending)
        self._busy -= devices
        if self._behind:
            behind, self._behind = self._behind, []
            self._return(behind)

    async def _resolve_edited(self, taken: list[DecidedDetection]) -> set[int]:
        """Find the present places of detections that have waited while something was edited.

        Returns the identities of these detections.
        """
        version, known = self.index.cache.version, self.index.cache.known
        edited = [
            each
            for each in taken
            if each.version != version and known.get(each.key) is not each.beacon
        ]
        if edited:
            keys = {key for each in edited if (key := each.key) is not None}
            beacons = await self.index.resolve(keys, 0)
            for each in edited:
                each.beacon = beacons.get(each.key)
        return {id(each) for each in edited}

    async def _find_time_zones(self, taken: list[DecidedDetection]) -> set[int]:
        """Find the time zones of devices, where a company has quiet hours and no message says it.

        The intake may not have known them. Returns the identities of these detections.
        """
        asked = [
            each
            for each in taken
            if each.beacon is not None
            and each.beacon.target.rules.quiet_hours is not None
            and each.device.time_zone is None
        ]
        if asked:
            found = await self.devices.find({each.device_key for each in asked})
            for each in asked:
                record = found[each.device_key]
                each.time_zone = None if record is None else record.time_zone
        return {id(each) for each in asked}

    def _prepare(
        self, taken: list[DecidedDetection], changed: set[int]
    ) -> tuple[list[DecidedDetection], list[DeviceRequests]]:
        """Name the notifications; decide again if something has changed since the intake did.

        Returns the requests for claims, each with its detection.
        """
        claiming, requests = list[DecidedDetection](), list[DeviceRequests]()
        unread, may_share = set[str](), False
        now = self.clock()
        oldest = now - self.max_age
        for each in taken:
            remembered, udid = each.partition.remembered, each.device.udid
            claims = remembered.by_device.get(udid, _NO_CLAIMS)
            if (
                (claims and each.plan.may_be_denied(claims))
                or each.detected_at < oldest
                or (changed and id(each) in changed)
            ):
                remembered.forget_expired(now)
                each.decision = decide_from_memory(each, remembered, now, self.max_age)
                if not each.decision.granted:
                    continue
                each.make_plan()
            packed, caps = each.prepare(), each.plan.caps
            if packed:
                read = READ not in claims and len(unread) < _MOST_READ and udid not in unread
                if read:
                    unread.add(udid)
                may_share = may_share or bool(claiming and caps and each.is_of(claiming[-1]))
                claiming.append(each)
                requests.append(DeviceRequests(udid, packed, read, caps))
        return _by_priority(claiming, requests) if may_share else (claiming, requests)

    async def _claim(
        self, claiming: list[DecidedDetection], requests: list[DeviceRequests]
    ) -> None:
        """Take the claims of all grants in one call; waits while Redis does not answer."""
        now = self.clock()
        answers = await retry(
            lambda: self.claims.take(requests, now), self.metrics.redis_errors, "claims"
        )
        answered = dict[int, tuple[DecidedDetection, list[Answer]]]()
        for each, forbidden, request in zip(claiming, answers.forbidden_by, requests, strict=True):
            if request.read and (found := answers.read.get(request.udid)) is not None:
                each.partition.remembered.remember(request.udid, found, now, are_all=True)
            answered.setdefault(id(each), (each, []))[1].extend(forbidden)
        for each, forbidden in answered.values():
            if any(forbidden):
                _note_denied(each, forbidden, now)
            else:
                claims = dict.fromkeys(each.plan.claims, each.detected_at)
                each.partition.remembered.remember(each.device.udid, claims, now)

    async def _find_devices(self, sending: list[DecidedDetection]) -> None:
        """Find the records of devices; calls need none."""
        informed = [each for each in sending if each.plan.has_notifications]
        keys = [each.device_key for each in informed]
        known = await self.devices.find(keys)
        for each, key in zip(informed, keys, strict=True):
            each.known = known[key]

    def _send(self, sending: list[DecidedDetection]) -> None:
        """Compose, and publish in a task of its own, so that the next cycle claims meanwhile."""
        messages = self.writer.write(sending, self.clock())
        self._unacknowledged += sum([each.plan.size for each in sending])
        left = Counter([each.partition for each in sending])
        for partition in left:
            partition.unfinished_sends += 1
        task = asyncio.create_task(self._publish(messages, left), name="send")
        self._sends.add(task)
        task.add_done_callback(self._note_end)

    async def _publish(
        self, messages: Sequence[Message], left: "Counter[TriggerPartition]"
    ) -> None:
        """Publish messages; `left` of the detections that fire them are not finished.

        Each detection is finished when all of its messages are acknowledged. Those for another
        partition may have another leader: where one does not answer, only those wait that need it.
        """
        published = list[Message]()

        def note_acknowledged(acknowledged: Sequence[Message]) -> None:
            published.extend(acknowledged)
            self._finish_messages(acknowledged, left, "published")

        try:
            with self.step("publish"):
                refused = await self.letters.publish_or_dead_letter(messages, note_acknowledged)
                if refused:
                    await self._give_back(refused)
                    self._finish_messages(refused, left, "too_large")
        finally:
            self.counter.count_sent(published, self.clock())

    async def _give_back(self, refused: Sequence[Message]) -> None:
        """Give back the claims of messages that were too large.

        This process still remembers them for a while, so that a device that stays does not lead to
        a dead letter every second.
        """
        now, updates = self.clock(), list[ClaimUpdate]()
        for message in refused:
            decided, campaign = message.decided, message.campaign
            caps, at = _caps_of(message), decided.detected_at
            if not (campaign.delay or caps):
                continue
            udid, remembered = decided.device.udid, decided.partition.remembered
            claims = dict.fromkeys(claim_keys([campaign]), at)
            remembered.remember(udid, claims, now, briefly=True)
            place = None
            if caps:  # what they have denied meanwhile may be free again
                packed = pack_caps(decided.decision.company_id, caps)
                remembered.remember_capped(udid, packed, (0, 0, 0), now)
                place = CapPlace(packed, "refused")
            updates.append(
                ClaimUpdate(
                    campaign_id=campaign.id,
                    udid=udid,
                    notification_id=message.notification_id,
                    detected_at=at,
                    delay=campaign.delay,
                    keep=0,
                    place=place,
                )
            )
        await retry(lambda: self.claims.settle(updates), self.metrics.redis_errors, "claims")

    def _finish_messages(
        self, messages: Sequence[Message], left: "Counter[TriggerPartition]", outcome: str
    ) -> None:
        """Finish the detections of which these were the last messages."""
        finished = list[DecidedDetection]()
        for message in messages:
            each = message.decided
            each.unsent -= 1
            if not each.unsent:
                finished.append(each)
            if message.span is not None:
                message.span.end(outcome)
        self._unacknowledged -= sum([each.plan.size for each in finished])
        self._room.set()
        for partition, count in _finish(finished).items():
            left[partition] -= count
            if not left[partition]:
                partition.unfinished_sends -= 1
                if partition.held_back:
                    held_back, partition.held_back = partition.held_back, []
                    self._return(held_back)
                    self.put(())

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._sends.discard(task)
        self._running.discard(task)
        if task.cancelled():
            return
        error = task.exception()  # retrieved, so that asyncio does not log it
        if error is not None:
            self.failure = self.failure or error
            for partition in self._partitions:
                partition.on_progress()
        else:
            self.put(())


def _caps_of(message: Message) -> tuple[Cap, ...]:
    """The company's caps that count the campaign."""
    beacon = message.decided.beacon
    return () if beacon is None or message.campaign.ignores_caps else beacon.target.rules.caps


def _by_priority(
    claiming: list[DecidedDetection], requests: list[DeviceRequests]
) -> tuple[list[DecidedDetection], list[DeviceRequests]]:
    """The requests one by one, those of one detection by priority: where it fires campaigns at
    several places, or by a visit, the first of all gets the last place that caps leave."""
    pieces = list[tuple[int, tuple[int, int], DecidedDetection, DeviceRequests]]()
    number = 0
    for each, request in zip(claiming, requests, strict=True):
        number += not (pieces and each.is_of(pieces[-1][2]))
        planned = zip(each.decision.granted, each.plan.campaigns, strict=True)
        asking = [campaign.precedence for campaign, plan in planned if plan.asks]
        for i, precedence in enumerate(asking):
            packed = request.packed[i * REQUEST_BYTES : (i + 1) * REQUEST_BYTES]
            piece = DeviceRequests(request.udid, packed, request.read and not i, request.caps)
            pieces.append((number, precedence, each, piece))
    pieces.sort(key=itemgetter(0, 1))
    return [each for _, _, each, _ in pieces], [piece for _, _, _, piece in pieces]


def _note_denied(each: DecidedDetection, forbidden: list[Answer], now: float) -> None:
    """Remember the answers, and take the denied campaigns from the decision.

    The claim that denies a campaign is remembered like one that was read.
    """
    remembered, left = each.partition.remembered, iter(forbidden)
    answers, claims = list[Answer](), dict[int, float]()
    for campaign in each.plan.campaigns:
        by = next(left) if campaign.asks else 0
        answers.append(by)
        if isinstance(by, list):
            remembered.remember_capped(each.device.udid, each.plan.caps, by, now)
        else:
            claims |= dict.fromkeys(campaign.claims, by / 1000 if by else each.detected_at)
    remembered.remember(each.device.udid, claims, now)
    each.deny(answers)


def _finish(finished: list[DecidedDetection]) -> "dict[TriggerPartition, int]":
    """Finish detections in their partitions. Returns how many each has had."""
    by_partition: dict[TriggerPartition, list[DecidedDetection]] = {}
    for each in finished:
        by_partition.setdefault(each.partition, []).append(each)
    for partition, listed in by_partition.items():
        partition.finish_detections(listed)
    return {partition: len(listed) for partition, listed in by_partition.items()}
