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
from itertools import chain
from typing import TYPE_CHECKING

from engine.kafka.dead_letters import DeadLetterPublisher
from engine.kafka.producer import Outgoing
from engine.process.failures import retry
from engine.process.lifecycle import cancel
from engine.process.metrics import Metrics, StepTimer
from engine.redis.claims import (
    COUNTED,
    NOT_COUNTED,
    RETURNABLE,
    ClaimAnswers,
    Claims,
    ClaimUpdater,
    DeviceRequests,
    pack_caps,
    pack_request,
)
from engine.redis.devices import DeviceLookup
from engine.trigger.decision_counts import DecisionCounter
from engine.trigger.decision_feed import DecisionFeed
from engine.trigger.grants import DecidedDetection, Grant, decide_from_memory, grants_of
from engine.trigger.message import MessageWriter, content_bytes
from engine.trigger.place_index import PlaceIndex

if TYPE_CHECKING:
    from engine.trigger.partition import TriggerPartition

ROLE = "trigger"

# The bounds of one cycle in campaigns; a company gets its share of them, but at least so many.
_MOST_CAMPAIGNS = 2048
_LEAST_SHARE = 16
# A partition with messages in so many unfinished sends waits: a leader does not answer.
_MOST_SENDS = 4
_MOST_READ = 256  # devices whose claims are all read in one cycle
_MOST_CLAIMED = 2  # cycles whose messages are not composed yet


class Cycle:
    """Runs while detections wait. `cycle_bytes` bounds the messages of a cycle, and eight times as
    many those that are not acknowledged. `clock` in epoch seconds.

    With transactions each partition has a cycle with its own `letters`; else the process has one.
    """

    def __init__(
        self,
        *,
        index: PlaceIndex,
        claims: Claims,
        updater: ClaimUpdater,
        devices: DeviceLookup,
        writer: MessageWriter,
        letters: DeadLetterPublisher,
        feed: DecisionFeed,
        counter: DecisionCounter,
        metrics: Metrics,
        max_age: float,
        cycle_bytes: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.letters = letters
        self.step = StepTimer(metrics, ROLE)
        self.failure: BaseException | None = None
        self._index = index
        self._claims = claims
        self._updater = updater
        self._devices = devices
        self._writer = writer
        self._feed = feed
        self._counter = counter
        self._redis_errors = metrics.redis_errors
        self._max_age = max_age
        self._cycle_bytes = cycle_bytes
        self._clock = clock
        self._queues: dict[int, deque[DecidedDetection]] = {}  # by company, in rotation
        self._partitions: set[TriggerPartition] = set()
        self._unacknowledged = 0
        self._claimed: list[list[DecidedDetection]] = []  # of each cycle, to be composed
        self._room = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._composing: asyncio.Task[None] | None = None
        self._sends: dict[asyncio.Task[None], _Send] = {}

    def join(self, partition: "TriggerPartition") -> None:
        """A partition begins."""
        self._partitions.add(partition)

    async def leave(self, partition: "TriggerPartition") -> None:
        """A partition was abandoned: what waits of it is dropped when it is met."""
        self._partitions.discard(partition)
        if self._partitions:
            return
        sends, self._sends = self._sends, {}
        running = [task for task in (self._running, self._composing) if task is not None]
        # Before the await: a partition that joins meanwhile begins with an empty cycle.
        self._running = self._composing = None
        self._queues.clear()
        self._claimed.clear()
        self._unacknowledged = 0
        for send in sends.values():
            send.close()
        await cancel([*running, *sends])

    def put(self, decided: Iterable[DecidedDetection]) -> None:
        """Queue detections that may fire."""
        for each in decided:
            company = each.decision.company_id
            queue = self._queues.get(company)
            if queue is None:
                queue = self._queues[company] = deque()
            queue.append(each)
        if self._running is None and self._queues and self.failure is None:
            self._running = asyncio.create_task(self._run(), name="cycle")
            self._running.add_done_callback(self._note_end)

    async def _run(self) -> None:
        while self._queues:
            while not self._has_room():
                self._room.clear()
                await self._room.wait()
            taken = self._take()
            if taken:
                await self._handle(taken)
            await asyncio.sleep(0)

    def _has_room(self) -> bool:
        return self._unacknowledged < 8 * self._cycle_bytes and len(self._claimed) < _MOST_CLAIMED

    def _take(self) -> list[DecidedDetection]:
        """The next detections of the waiting companies, in rotation."""
        taken: list[DecidedDetection] = []
        room, room_bytes, waiting = _MOST_CAMPAIGNS, self._cycle_bytes, len(self._queues)
        share = max(_LEAST_SHARE, room // waiting)
        share_bytes = max(1, room_bytes // waiting)
        for company in list(self._queues):
            queue = self._queues.pop(company)
            campaigns = size = 0
            while queue and campaigns < share and size < share_bytes:
                decided = queue.popleft()
                partition = decided.partition
                if partition.is_abandoned:
                    continue
                if partition.unfinished_sends >= _MOST_SENDS:
                    partition.held_back.append(decided)
                    continue
                taken.append(decided)
                granted = decided.decision.granted
                campaigns += len(granted)
                size += content_bytes(granted)
            if queue:
                self._queues[company] = queue  # behind the others
            room, room_bytes = room - campaigns, room_bytes - size
            if room <= 0 or room_bytes <= 0:
                break
        return taken

    async def _handle(self, taken: list[DecidedDetection]) -> None:
        """Claim, compose and publish for these detections."""
        edited = await self._resolve_edited(taken)
        edited |= await self._find_time_zones(taken)
        with self.step("decide"):
            self._decide(taken, edited)
        with self.step("claim"):
            await self._claim(taken)
        taken = [each for each in taken if not each.partition.is_abandoned]
        moments = [each for each in taken if each.detection.event is not None]
        if moments:
            self._counter.count_moments(moments)
        detections = [each for each in taken if each.detection.event is None] if moments else taken
        self._counter.count([each.decision for each in detections], detections)
        self._feed.note_claims(taken)
        sending = [each for each in taken if each.grants]
        if len(sending) < len(taken):
            _finish([each for each in taken if not each.grants])
        if sending:
            self._claimed.append(sending)
            if self._composing is None:
                self._composing = asyncio.create_task(self._compose_claimed(), name="compose")
                self._composing.add_done_callback(self._note_end)

    async def _compose_claimed(self) -> None:
        """Compose and send while the next cycles claim; what they claim meanwhile goes together.

        One task at a time, so messages keep their order.
        """
        while self._claimed:
            sending = list(chain.from_iterable(self._claimed))
            self._claimed.clear()
            await self._compose(sending)
            self._send(sending)
            self._room.set()
        self._composing = None

    async def _resolve_edited(self, taken: list[DecidedDetection]) -> set[int]:
        """Find the present places of detections that have waited while something was edited.

        Returns the identities of these detections.
        """
        version, known = self._index.cache.version, self._index.cache.known
        edited = [
            each
            for each in taken
            if each.version != version and known.get(each.detection.key) is not each.beacon
        ]
        if edited:
            keys = {key for each in edited if (key := each.detection.key) is not None}
            beacons = await self._index.resolve(keys, 0)
            for each in edited:
                each.beacon = beacons.get(each.detection.key)
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
            and each.detection.message.device.time_zone is None
        ]
        if asked:
            zones = await self._devices.find_time_zones({each.device for each in asked})
            for each in asked:
                each.time_zone = zones[each.device]
        return {id(each) for each in asked}

    def _decide(self, taken: list[DecidedDetection], edited: set[int]) -> None:
        """Make the grants; decide again if something has changed since the intake decided."""
        now = self._clock()
        oldest = now - self._max_age
        for each in taken:
            detection, remembered = each.detection, each.partition.remembered
            if (
                remembered.may_deny(
                    detection.message.device.udid,
                    each.decision.granted,
                    each.decision.company_id,
                )
                or detection.detected_at < oldest
                or (edited and id(each) in edited)
            ):
                remembered.forget_expired(now)
                each.decision = decide_from_memory(
                    detection,
                    each.beacon,
                    remembered,
                    now,
                    self._max_age,
                    each.elsewhere,
                    each.time_zone,
                )
            if each.beacon is not None:
                each.grants = grants_of(detection, each.beacon, each.decision)

    async def _claim(self, taken: list[DecidedDetection]) -> None:
        """Take the claims of all grants in one call; waits while Redis does not answer."""
        claiming: list[DecidedDetection] = []
        requests: list[DeviceRequests] = []
        unread: set[str] = set()
        for each in taken:
            rules = None if each.beacon is None else each.beacon.target.rules
            caps = () if rules is None else rules.caps
            at = round(each.detection.detected_at * 1000)
            packed = []
            for grant in each.grants:
                campaign, counted = grant.campaign, NOT_COUNTED
                if caps and not campaign.ignores_caps:
                    counted = RETURNABLE if grant.is_call else COUNTED
                if campaign.delay > 0 or counted:
                    delay, owner = campaign.delay * 1000, grant.notification_id
                    packed.append(pack_request(campaign.id, owner, at, delay, counted))
            if not packed:
                continue
            udid = each.detection.message.device.udid
            read = (
                len(unread) < _MOST_READ
                and udid not in unread
                and not each.partition.remembered.was_read(udid)
            )
            if read:
                unread.add(udid)
            claiming.append(each)
            counting = pack_caps(each.decision.company_id, caps) if caps else b""
            requests.append(DeviceRequests(udid, b"".join(packed), read, counting))
        if claiming:
            now = self._clock()
            answers = await retry(
                lambda: self._claims.take(requests, now), self._redis_errors, "claims"
            )
            _note_answers(claiming, answers, now)

    async def _compose(self, sending: list[DecidedDetection]) -> None:
        """Write the messages; calls need no records of devices."""
        keys = [each.device for each in sending]
        needed = {
            key
            for key, each in zip(keys, sending, strict=True)
            if each.grants[0].beacon.connector is None or not all(g.is_call for g in each.grants)
        }
        known = await self._devices.find(needed) if needed else {}
        now = self._clock()
        for key, each in zip(keys, sending, strict=True):
            each.unsent = len(each.grants)
            each.size = self._writer.write(each, known.get(key), now)

    def _send(self, sending: list[DecidedDetection]) -> None:
        """Publish in a task of its own, so that the next cycle claims meanwhile."""
        send = _Send(sending, self._note_finished)
        self._unacknowledged += send.size
        task = asyncio.create_task(self._publish(send), name="send")
        self._sends[task] = send
        task.add_done_callback(self._note_end)

    async def _publish(self, send: "_Send") -> None:
        grants = send.grants
        with self.step("publish"):
            refused = await self.letters.publish_or_dead_letter(grants, send.note_acknowledged)
            if refused:
                await self._give_back(refused, send)
        send.finish_all()
        too_large = {id(grant) for grant in refused}
        for grant in grants:
            if grant.span is not None:
                grant.span.end("too_large" if id(grant) in too_large else "published")
        if too_large:
            grants = [grant for grant in grants if id(grant) not in too_large]
        self._counter.count_sent(grants, self._clock())

    async def _give_back(self, refused: Sequence[Grant], send: "_Send") -> None:
        """Give back the claims of grants whose messages were too large.

        This process still remembers them for a while, so that a device that stays does not lead to
        a dead letter every second.
        """
        now = self._clock()
        claimed = [grant for grant in refused if grant.needs_claim]
        for grant in claimed:
            claim = grant.campaign, grant.detection.detected_at
            remembered = send.partition_of(grant).remembered
            remembered.remember(grant.udid, [claim], now, briefly=True)
            if grant.caps:  # what they have denied meanwhile may be free again
                company = grant.beacon.company_reference.id
                remembered.remember_capped(grant.udid, company, (0, 0, 0), now)
        updates = [grant.refused_claim() for grant in claimed]
        await retry(lambda: self._updater.apply(updates), self._redis_errors, "claims")

    def _note_finished(
        self, finished: list[DecidedDetection], free: "list[TriggerPartition]"
    ) -> None:
        """All messages of these detections are acknowledged; `free` partitions may send again."""
        _finish(finished)
        self._unacknowledged -= sum(each.size for each in finished)
        self._room.set()
        for partition in free:
            if partition.held_back:
                held_back, partition.held_back = partition.held_back, []
                self._put_first(held_back)

    def _put_first(self, held_back: list[DecidedDetection]) -> None:
        for each in reversed(held_back):
            self._queues.setdefault(each.decision.company_id, deque()).appendleft(each)
        self.put(())

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._sends.pop(task, None)
        if task is self._running:
            self._running = None
        if task.cancelled():
            return
        error = task.exception()  # retrieved, so that asyncio does not log it
        if error is not None:
            self.failure = self.failure or error
            for partition in self._partitions:
                partition.on_progress()
        elif self._running is None:
            self.put(())


class _Send:
    """Messages on their way: finishes each detection when all of its messages are acknowledged.

    The partitions of the notifications may have different leaders: where one of them does not
    answer, only the detections wait whose messages it has to acknowledge.
    """

    def __init__(
        self,
        sending: list[DecidedDetection],
        finished: "Callable[[list[DecidedDetection], list[TriggerPartition]], None]",
    ) -> None:
        self.grants = [grant for each in sending for grant in each.grants]
        self.size = sum(each.size for each in sending)
        self._finished = finished
        self._waiting = {id(grant.message): each for each in sending for grant in each.grants}
        self._left = Counter([each.partition for each in sending])
        for partition in self._left:
            partition.unfinished_sends += 1

    def partition_of(self, grant: Grant) -> "TriggerPartition":
        """The partition of a grant whose message is not acknowledged."""
        return self._waiting[id(grant.message)].partition

    def note_acknowledged(self, messages: Iterable[Outgoing]) -> None:
        """The brokers have these messages."""
        finished, waiting = [], self._waiting
        for message in messages:
            each = waiting.pop(id(message), None)
            if each is not None:
                each.unsent -= 1
                if not each.unsent:
                    finished.append(each)
        self._finish(finished)

    def close(self) -> None:
        """Nobody waits for these messages any more; acknowledgements move nothing."""
        self._waiting.clear()

    def finish_all(self) -> None:
        """All is published, or has a dead letter in its place."""
        left = {id(each): each for each in self._waiting.values()}
        self._waiting.clear()
        self._finish(list(left.values()))

    def _finish(self, finished: list[DecidedDetection]) -> None:
        free, left = [], self._left
        for partition, count in Counter([each.partition for each in finished]).items():
            left[partition] -= count
            if not left[partition]:
                partition.unfinished_sends -= 1
                free.append(partition)
        if finished:
            self._finished(finished, free)


def _note_answers(claiming: list[DecidedDetection], answers: ClaimAnswers, now: float) -> None:
    """Remember the answers, and take the denied grants from their detections.

    The claim that denies a grant is remembered like one that was read.
    """
    read = answers.read
    for each, forbidden in zip(claiming, answers.forbidden_by, strict=True):
        udid, at, grants, remembered = (
            each.detection.message.device.udid,
            each.detection.detected_at,
            each.grants,
            each.partition.remembered,
        )
        if len(forbidden) < len(grants):
            grants = [grant for grant in grants if grant.needs_claim]
        claims = [
            (grant.campaign, by / 1000 if by else at)
            for grant, by in zip(grants, forbidden, strict=True)
            if not isinstance(by, list) and grant.campaign.delay > 0
        ]
        remembered.remember(udid, claims, now, read=read.get(udid))
        if any(forbidden):
            company = each.decision.company_id
            for by in forbidden:
                if isinstance(by, list):
                    remembered.remember_capped(udid, company, by, now)
            each.deny({id(grant): by for grant, by in zip(grants, forbidden, strict=True) if by})


def _finish(finished: list[DecidedDetection]) -> None:
    """Finish the records of detections in their partitions."""
    by_partition: dict[TriggerPartition, list[DecidedDetection]] = {}
    for each in finished:
        by_partition.setdefault(each.partition, []).append(each)
    for partition, listed in by_partition.items():
        events = [event for each in listed if (event := each.detection.event) is not None]
        if events:
            partition.finish_moments(events)
            listed = [each for each in listed if each.detection.event is None]
        partition.finish_records([each.detection.record for each in listed])
