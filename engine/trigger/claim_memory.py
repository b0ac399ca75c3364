"""Caches claims in the process, so that a device that stays at a beacon costs no round trip."""

from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from engine.trigger.standing import StandingDecision
from rules.model import CampaignSnapshot

_NOTHING: Mapping[int, float] = MappingProxyType({})

# A device's certain claims are stored under their campaign's id. The claims that were read with the
# device's first request are stored under the negative id; this key says that they were read.
_READ = 0


class ClaimMemory:
    """The claims that a process remembers, over all its partitions: at most `most_claims`.

    The claims of the devices that were detected longest ago are forgotten first, a generation at a
    time. Redis is asked for them again.
    """

    def __init__(self, most_claims: int) -> None:
        self.half = max(1, most_claims // 2)
        self.young = 0
        self._parts: set[RememberedClaims] = set()

    def for_assignment(self) -> "RememberedClaims":
        """The memory of one assignment of one partition, to be closed when the assignment ends."""
        part = RememberedClaims(self)
        self._parts.add(part)
        return part

    def count(self, claims: int) -> None:
        """Add to the count of young claims; at half of the bound all young claims become old."""
        self.young += claims
        if self.young >= self.half:
            for part in self._parts:
                part.grow_old()
            self.young = 0

    def forget(self, part: "RememberedClaims", young: int) -> None:
        """The assignment has ended; it had so many young claims."""
        if part in self._parts:
            self._parts.remove(part)
            self.young -= young


class RememberedClaims:
    """By device: campaign id -> `detected_at` (epoch s) of the newest known claim.

    Belongs to one assignment of one partition and ends with it: a record that is delivered again
    after a rebalance must ask Redis, which knows that the record owns the claim. For the same
    reason a claim that was only read denies only later detections (docs/decisions/0085).

    `young` has the claims of the present generation, by device; only this class changes it.
    `standing` has, by device, what was decided from its claims. That ends when one of them is
    forgotten (more claims throttle no less), and with their generation: the claims of a device that
    stays are made young again.
    """

    def __init__(self, memory: ClaimMemory) -> None:
        self._memory = memory
        self.young: dict[str, dict[int, float]] = {}
        self._old: dict[str, dict[int, float]] = {}
        self._brief: deque[tuple[float, str, int]] = deque()
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
        self._memory.count(len(claims))
        return claims

    def was_read(self, udid: str) -> bool:
        """Whether all claims of the device were read in this assignment and are remembered."""
        return _READ in self.of(udid)

    def read(self, udid: str, claims: Mapping[int, float]) -> None:
        """Add all claims of a device, as Redis had them. Certain claims take precedence."""
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
        """Forget the claims remembered only until `now`; the next detection asks Redis again."""
        while self._brief and self._brief[0][0] <= now:
            self._forget_first()

    def grow_old(self) -> None:
        """Start a generation. Unused claims of the last one are forgotten at the next start."""
        self._old, self.young = self.young, {}
        self.standing.clear()

    def close(self) -> None:
        """Forget all claims, because the assignment has ended.

        A worker that has ended is part of a cycle, which the collector finds after hours
        (`tune_garbage_collector`): its claims are released now.
        """
        self._memory.forget(self, sum(map(len, self.young.values())))
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
                if not claims:
                    del generation[udid]
                if generation is self.young:
                    self._memory.young -= 1
