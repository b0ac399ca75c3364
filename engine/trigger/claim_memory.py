"""Remembers claims in the process, so that a device that stays at a beacon costs no round trip."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from types import MappingProxyType

from rules.model import CampaignSnapshot

_NOTHING: Mapping[int, float] = MappingProxyType({})

READ = 0  # the key which says that all claims of a device were read and are remembered
# Added to a company's id: the keys of the times between which its caps deny detections.
_CAPPED_AFTER, _CAPPED_UNTIL = 1 << 64, 1 << 65
_BRIEFLY = 5.0
_DEVICE = 3  # a device with claims takes as much memory as so many claims more


def claim_key(campaign: CampaignSnapshot) -> int:
    """The key of the claims on a campaign: negative for those that may be given back."""
    return -campaign.id if campaign.format == "connector" else campaign.id


def capped_key(company_id: int) -> int:
    """The key of the time until which a company's caps deny detections."""
    return _CAPPED_UNTIL + company_id


class ClaimMemory:
    """The claims that a process remembers, over all its partitions: at most `most_claims` of as
    many devices, and in the same memory up to four times as many of devices that have many.

    Claims are young or old. When the young ones fill half of the memory they become old, and those
    that were old are forgotten: Redis is asked for them again. The claims of a device that is
    detected become young.
    """

    def __init__(self, most_claims: int) -> None:
        self.most = most_claims
        self._young = self._old = 0
        self._parts: set[RememberedClaims] = set()

    @property
    def held(self) -> int:
        """How much is used: one for each claim, and three for each device."""
        return self._young + self._old

    def for_assignment(self) -> "RememberedClaims":
        """The memory of one assignment of one partition, to be closed when the assignment ends."""
        part = RememberedClaims(self)
        self._parts.add(part)
        return part

    def count(self, young: int, old: int) -> None:
        """Add to what is used."""
        self._young += young
        self._old += old

    def begin_generation_if_full(self) -> None:
        """Make all claims old if the young ones are too many."""
        if self._young > self.most * (1 + _DEVICE) // 2:
            for part in self._parts:
                part.grow_old()
            self._young, self._old = 0, self._young

    def end(self, part: "RememberedClaims", young: int, old: int) -> None:
        """The assignment has ended; it held so much."""
        if part in self._parts:
            self._parts.remove(part)
            self.count(-young, -old)


class RememberedClaims:
    """By device: campaign id -> `detected_at` (epoch s) of the newest known claim.

    A claim denies only later detections, until its delay is over. A record with the claim's own
    time, or an earlier one, may be its owner that is delivered again, and asks Redis. Belongs to
    one assignment of one partition and ends with it.

    Claims of connector campaigns have the negative id and are remembered for a short time only: the
    connector role may give them back. What a company's caps deny is remembered in the same way, by
    the company. `young` is read by the compiled filter; only this class
    changes it.
    """

    def __init__(self, memory: ClaimMemory) -> None:
        self._memory = memory
        self.young: dict[str, dict[int, float]] = {}
        self._old: dict[str, dict[int, float]] = {}
        self._brief: deque[tuple[float, str, int]] = deque()
        self._is_closed = False

    def of(self, udid: str) -> Mapping[int, float]:
        """The claims of one device."""
        claims = self.young.get(udid)
        if claims is not None or not self._old:
            return claims or _NOTHING
        claims = self._old.pop(udid, None)
        if claims is None:
            return _NOTHING
        self.young[udid] = claims
        size = _size(claims)
        self._memory.count(size, -size)
        return claims

    def not_held(
        self, claims: Mapping[int, float], campaigns: Sequence[CampaignSnapshot], at: float
    ) -> tuple[CampaignSnapshot, ...]:
        """The campaigns that these claims of a device do not deny to a detection at `at`."""
        free = []
        for campaign in campaigns:
            since = claims.get(claim_key(campaign))
            if since is None or not since < at < since + campaign.delay:
                free.append(campaign)
        return tuple(free)

    def is_capped(self, claims: Mapping[int, float], company_id: int, at: float) -> bool:
        """Whether the caps of the company deny a detection at `at` to the device of these claims.

        Like a claim they deny only what is later than the newest notification that they count.
        """
        until = claims.get(_CAPPED_UNTIL + company_id)
        return until is not None and claims.get(_CAPPED_AFTER + company_id, inf) < at < until

    def remember(
        self,
        udid: str,
        campaigns: Iterable[CampaignSnapshot],
        at: float,
        now: float,
        *,
        read: Mapping[int, float] | None = None,
        briefly: bool = False,
    ) -> None:
        """Remember claims of a device at `at`, each if it is the newest of its campaign.

        `read` has all that Redis had. Claims of connector campaigns, and those remembered
        `briefly`, are forgotten some seconds after `now`: they may be given back.
        """
        if self._is_closed:
            return
        known = self.young.get(udid)
        if known is None:
            known = self._known(udid)
        before = len(known)
        if read is not None:
            known[READ] = 0.0
            for campaign_id, since in read.items():
                known[campaign_id] = max(since, known.get(campaign_id, since))
        for campaign in campaigns:
            if campaign.delay <= 0:
                continue
            key = claim_key(campaign)
            if known.get(key, at) <= at:
                known[key] = at
            if briefly or key < 0:
                self._brief.append((now + _BRIEFLY, udid, key))
        if len(known) > before:
            self._grown(known, before)

    def remember_capped(
        self, udid: str, company_id: int, denied: Sequence[int], now: float
    ) -> None:
        """Remember that caps deny detections after the first of these times (epoch ms) and before
        the second; with the third for some seconds only: a place may be given back."""
        if self._is_closed:
            return
        known = self._known(udid)
        before, (after, until, briefly) = len(known), denied
        for key, at in ((_CAPPED_AFTER, after), (_CAPPED_UNTIL, until)):
            known[key + company_id] = at / 1000
            if briefly:
                self._brief.append((now + _BRIEFLY, udid, key + company_id))
        self._grown(known, before)

    def _known(self, udid: str) -> dict[int, float]:
        """The claims of a device, young, to be added to."""
        known = self.young.get(udid)
        if known is None:
            self.of(udid)
            known = self.young.setdefault(udid, {})
        return known

    def _grown(self, known: Mapping[int, float], before: int) -> None:
        """Count what was added to a device that had `before` claims, and make room."""
        if more := len(known) - before:
            self._memory.count(more if before else more + _DEVICE, 0)
        while self._brief and len(self._brief) > max(1, self._memory.most // 2):
            self._forget_first()
        self._memory.begin_generation_if_full()

    def forget_expired(self, now: float) -> None:
        """Forget claims whose time is over; the next detection asks Redis again."""
        while self._brief and self._brief[0][0] <= now:
            self._forget_first()

    def grow_old(self) -> None:
        """Forget what is old, and make all claims old."""
        self._old, self.young = self.young, {}

    def close(self) -> None:
        """Forget all claims, because the assignment has ended."""
        self._is_closed = True
        young, old = (sum(map(_size, each.values())) for each in (self.young, self._old))
        self._memory.end(self, young, old)
        self.young, self._old = {}, {}
        self._brief.clear()

    def _forget_first(self) -> None:
        _, udid, key = self._brief.popleft()
        self.of(udid)
        known = self.young.get(udid, {})
        if known.pop(key, None) is not None:
            self._memory.count(-1 if known else -1 - _DEVICE, 0)
        if not known:
            self.young.pop(udid, None)


def _size(claims: Mapping[int, float]) -> int:
    """How much memory the claims of one device take, in claims."""
    return len(claims) + _DEVICE if claims else 0
