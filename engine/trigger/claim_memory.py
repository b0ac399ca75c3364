"""Caches claims in the process, so that a device that stays at a beacon costs no round trip."""

import random
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from math import ceil
from types import MappingProxyType

from engine.trigger.standing import StandingDecision
from rules.model import CampaignSnapshot

_NOTHING: Mapping[int, float] = MappingProxyType({})

# A device's certain claims are stored under their campaign's id. The claims that were read with the
# device's first request are stored under the negative id; this key says that they were read.
_READ = 0

_DEVICE = 3  # a device with claims takes as much memory as so many claims more
_FORGOTTEN_AT_ONCE = 64  # one in so many claims


class ClaimMemory:
    """The claims that a process remembers, over all its partitions: at most `most_claims` of as
    many devices, and in the same memory up to four times as many of devices that have many.

    `held` is how much of the memory is used: one for each claim, and three for each device.

    Claims are young or old. If there are too many, some old ones are forgotten, and Redis is asked
    for them again; if none are old, all become old first. The claims of a device that is detected
    become young. Which of the old ones are forgotten is left to chance: if devices come round in
    turn, and they are a few too many, only a few are forgotten (docs/decisions/0129).
    """

    def __init__(self, most_claims: int) -> None:
        self.most = most_claims
        self.held = 0
        self._room = most_claims * (1 + _DEVICE)
        self._parts: set[RememberedClaims] = set()

    def for_assignment(self) -> "RememberedClaims":
        """The memory of one assignment of one partition, to be closed when the assignment ends."""
        part = RememberedClaims(self)
        self._parts.add(part)
        return part

    def count(self, more: int) -> None:
        """Add to `held`; forget some claims if there are too many."""
        self.held += more
        if self.held > self._room:
            self._forget(self.most // _FORGOTTEN_AT_ONCE * (1 + _DEVICE))

    def end(self, part: "RememberedClaims", held: int) -> None:
        """The assignment has ended; it held so much."""
        if part in self._parts:
            self._parts.remove(part)
            self.held -= held

    def _forget(self, room: int) -> None:
        """Forget old claims until there is so much room."""
        while (too_many := self.held - self._room + room) > 0:
            if not any(part.has_old for part in self._parts):
                for part in self._parts:
                    part.grow_old()
            with_old = [part for part in self._parts if part.has_old]
            share = ceil(too_many / len(with_old))
            for part in with_old:
                self.held -= part.forget_old(share)


class RememberedClaims:
    """By device: campaign id -> `detected_at` (epoch s) of the newest known claim.

    Belongs to one assignment of one partition and ends with it: a record that is delivered again
    after a rebalance must ask Redis, which knows that the record owns the claim. For the same
    reason a claim that was only read denies only later detections (docs/decisions/0085).

    `young` has the claims of the present generation, by device; only this class changes it.
    `standing` has, by device, what was decided from its claims. That ends when one of them is
    forgotten (more claims throttle no less), and when all claims become old: those of a device that
    stays are made young again.
    """

    def __init__(self, memory: ClaimMemory) -> None:
        self._memory = memory
        self.young: dict[str, dict[int, float]] = {}
        self._old: dict[str, dict[int, float]] = {}
        self._brief: deque[tuple[float, str, int]] = deque()
        self.is_closed = False
        self.standing: dict[str, StandingDecision] = {}

    def of(self, udid: str) -> Mapping[int, float]:
        """The claims of one device."""
        claims = self.young.get(udid)
        if claims is not None:
            return claims
        claims = self._old.pop(udid, None)
        if claims is None:
            return _NOTHING
        self.young[udid] = claims
        return claims

    def was_read(self, udid: str) -> bool:
        """Whether all claims of the device were read in this assignment and are remembered."""
        return _READ in self.of(udid)

    def read(self, udid: str, claims: Mapping[int, float]) -> None:
        """Add all claims of a device, as Redis had them. Certain claims take precedence."""
        known = self._of_young(udid)
        before = _size(known)
        known[_READ] = 0.0
        for campaign_id, detected_at in claims.items():
            if campaign_id not in known:
                known[-campaign_id] = detected_at
        self._memory.count(_size(known) - before)

    def forbidding(
        self, udid: str, campaigns: Iterable[CampaignSnapshot], detected_at: float
    ) -> dict[int, float]:
        """Claims that were only read and that deny these campaigns to a detection.

        This changes nothing, because a waiting record may own one of the claims. Claims of
        connector campaigns are left out: they may have been given back meanwhile, so Redis is
        asked.
        """
        known = self.young.get(udid, _NOTHING)
        if _READ not in known:
            return {}
        found: dict[int, float] = {}
        for campaign in campaigns:
            at = known.get(-campaign.id)
            if at is None or campaign.format == "connector":
                continue
            if at < detected_at < at + campaign.delay:
                found[campaign.id] = at
        return found

    def remember(
        self, udid: str, campaign_id: int, detected_at: float, until: float | None = None
    ) -> None:
        """Remember a claim if it is the newest. `forget_expired` forgets it at `until`."""
        claims = self.young.get(udid)
        if claims is None:
            claims = self._of_young(udid)
        before = _size(claims)
        claims.pop(-campaign_id, None)
        known = claims.get(campaign_id)
        if known is None or detected_at > known:
            claims[campaign_id] = detected_at
        more = _size(claims) - before
        if until is not None:
            self._brief.append((until, udid, campaign_id))
            if len(self._brief) > max(1, self._memory.most // 2):
                self._forget_first()
        if more:
            self._memory.count(more)

    def forget_expired(self, now: float) -> None:
        """Forget the claims remembered only until `now`; the next detection asks Redis again."""
        while self._brief and self._brief[0][0] <= now:
            self._forget_first()

    @property
    def has_old(self) -> bool:
        """Whether any claims are old."""
        return bool(self._old)

    def grow_old(self) -> None:
        """Make all claims old; none may be old yet."""
        self._old, self.young = self.young, {}
        self.standing.clear()

    def forget_old(self, size: int) -> int:
        """Forget old claims of this size, or a few more, because those of a device go together.

        Returns their size. The devices follow each other in the memory, from a random place on, and
        the first comes after the last. The newest device is left if there are others: its claims
        may just have been taken.
        """
        forgotten, old, chosen = 0, self._old, list[str]()
        devices = max(1, len(old) - 1)
        begin = random.randrange(devices)  # noqa: S311
        for udid, claims in chain(islice(old.items(), begin, devices), islice(old.items(), begin)):
            chosen.append(udid)
            forgotten += _size(claims)
            if forgotten >= size:
                break
        for udid in chosen:
            del old[udid]
        return forgotten

    def close(self) -> None:
        """Forget all claims, because the assignment has ended.

        A worker that has ended is part of a cycle, which the collector finds after hours
        (`tune_garbage_collector`): its claims are released now.
        """
        self.is_closed = True
        self._memory.end(self, sum(map(_size, chain(self.young.values(), self._old.values()))))
        self.young, self._old = {}, {}
        self._brief.clear()
        self.standing.clear()

    def _of_young(self, udid: str) -> dict[int, float]:
        """The device's claims, made young again, to be changed."""
        self.of(udid)
        return self.young.setdefault(udid, {})

    def _forget_first(self) -> None:
        _, udid, campaign_id = self._brief.popleft()
        self.standing.pop(udid, None)
        for generation in (self.young, self._old):
            claims = generation.get(udid)
            if claims is not None and claims.pop(campaign_id, None) is not None:
                self._memory.held -= 1
                if not claims:
                    del generation[udid]
                    self._memory.held -= _DEVICE


def _size(claims: Mapping[int, float]) -> int:
    """How much memory the claims of one device take, in claims."""
    return len(claims) + _DEVICE if claims else 0
