"""Claims that this process remembers: a device that stays at a beacon costs no round trip."""

from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from rules.model import CampaignSnapshot

_NOTHING: Mapping[int, float] = MappingProxyType({})

# Beside the claims of a device that are certain stand those that were read with the first claim
# it asked for, each under its campaign's id made negative; and this, which says that they were.
_READ = 0


class ClaimMemory:
    """What a process remembers, over all its partitions: at most `most_claims`.

    The claims of the devices that were detected longest ago are forgotten first, a generation at
    a time. Redis is asked for them again.
    """

    def __init__(self, most_claims: int) -> None:
        self.half = max(1, most_claims // 2)
        self.young = 0
        self._parts: set[RememberedClaims] = set()

    def for_assignment(self) -> "RememberedClaims":
        """The part of one assignment of one partition, to be closed with it."""
        part = RememberedClaims(self)
        self._parts.add(part)
        return part

    def count(self, claims: int) -> None:
        """Add to the young claims; when they are half of the bound, all of them grow old."""
        self.young += claims
        if self.young > self.half:
            for part in self._parts:
                part.grow_old()
            self.young = 0

    def forget(self, part: "RememberedClaims", young: int) -> None:
        """The assignment has ended, with so many young claims."""
        if part in self._parts:
            self._parts.remove(part)
            self.young -= young


class RememberedClaims:
    """Per device: campaign id -> `detected_at` (epoch s) of the newest claim known.

    Belongs to one assignment of one partition and dies with it: a record delivered again after
    a rebalance must ask Redis, which knows that the claim is its own. For the same reason a claim
    that was only read forbids only what was detected after it (docs/decisions/0085).
    """

    def __init__(self, memory: ClaimMemory) -> None:
        self._memory = memory
        self._young: dict[str, dict[int, float]] = {}
        self._old: dict[str, dict[int, float]] = {}
        self._brief: deque[tuple[float, str, int]] = deque()

    def of(self, udid: str) -> Mapping[int, float]:
        """The claims of one device."""
        claims = self._young.get(udid)
        if claims is not None:
            return claims
        claims = self._old.pop(udid, None)
        if claims is None:
            return _NOTHING
        self._young[udid] = claims
        self._memory.count(len(claims))
        return claims

    def was_read(self, udid: str) -> bool:
        """Whether all claims of the device were read in this assignment, and are remembered."""
        return _READ in self.of(udid)

    def read(self, udid: str, claims: Mapping[int, float]) -> None:
        """All claims of a device, as Redis had them. What is certain counts more."""
        known = self._of_young(udid)
        before = len(known)
        known[_READ] = 0.0
        for campaign_id, detected_at in claims.items():
            if campaign_id not in known:
                known[-campaign_id] = detected_at
        self._memory.count(len(known) - before)

    def forbidding(
        self, udid: str, campaigns: Iterable[CampaignSnapshot], detected_at: float
    ) -> dict[int, float]:
        """Claims that were only read and that forbid to send these campaigns for a detection.

        Nothing is noted: a record that owns one of them may be among those that wait. A connector
        campaign's claim may have been given back meanwhile: Redis is asked.
        """
        known = self._young.get(udid, _NOTHING)
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
        """Remember a claim; the newest counts. From `until` on, `forget_expired` forgets it."""
        claims = self._young.get(udid)
        if claims is None:
            claims = self._of_young(udid)
        before = len(claims)
        claims.pop(-campaign_id, None)
        known = claims.get(campaign_id)
        if known is None or detected_at > known:
            claims[campaign_id] = detected_at
        more = len(claims) - before
        if until is not None:
            self._brief.append((until, udid, campaign_id))
            if len(self._brief) > self._memory.half:
                self._forget_first()
        if more:
            self._memory.count(more)

    def forget_expired(self, now: float) -> None:
        """Forget the claims remembered only until `now`: the next detection asks Redis again."""
        while self._brief and self._brief[0][0] <= now:
            self._forget_first()

    def grow_old(self) -> None:
        """Start a generation. Claims of the last one are forgotten with the next, unless asked
        for."""
        self._old, self._young = self._young, {}

    def close(self) -> None:
        """The assignment has ended.

        A worker that has ended is a cycle, which the collector finds after hours
        (`tune_garbage_collector`): what it remembers is let go now.
        """
        self._memory.forget(self, sum(map(len, self._young.values())))
        self._young, self._old = {}, {}
        self._brief.clear()

    def _of_young(self, udid: str) -> dict[int, float]:
        """The device's claims, made young again, to be changed."""
        self.of(udid)
        return self._young.setdefault(udid, {})

    def _forget_first(self) -> None:
        _, udid, campaign_id = self._brief.popleft()
        for generation in (self._young, self._old):
            claims = generation.get(udid)
            if claims is not None and claims.pop(campaign_id, None) is not None:
                if not claims:
                    del generation[udid]
                if generation is self._young:
                    self._memory.young -= 1
