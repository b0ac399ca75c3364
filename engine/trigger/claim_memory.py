"""Remembers claims in the process, so that a device that stays at a beacon costs no round trip."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from math import inf

from rules.model import CampaignSnapshot

READ = 0  # the key which says that all claims of a device were read and are remembered
# Added to the hash of a company's caps: the keys of the times between which they deny detections.
_CAPPED_AFTER, _CAPPED_UNTIL = 1 << 64, 1 << 65
_BRIEFLY = 5.0
_DEVICE = 3  # a device with claims takes as much memory as so many claims more


def claim_key(campaign: CampaignSnapshot) -> int:
    """The key of the claims on a campaign: negative for those that may be given back."""
    return -campaign.id if campaign.format == "connector" else campaign.id


def claim_keys(campaigns: Iterable[CampaignSnapshot]) -> tuple[int, ...]:
    """The keys of the claims on those of the campaigns that take any."""
    return tuple(claim_key(each) for each in campaigns if each.delay > 0)


def capped_key(caps: bytes) -> int:
    """The key of the time until which these caps of a company (pack_caps) deny detections; what
    others denied before an edit does not count."""
    return _CAPPED_UNTIL + hash(caps)


class ClaimMemory:
    """The claims that a process remembers, over all its partitions: at most `most_claims` of as
    many devices, and in the same memory up to four times as many of devices that have many.

    When it is full, each partition forgets the devices that it has known longest: Redis is asked
    for them again. `held` is what is used: one for each claim, and three for each device.
    """

    def __init__(self, most_claims: int) -> None:
        self.most = most_claims
        self.held = 0
        self._parts: set[RememberedClaims] = set()

    def for_assignment(self) -> "RememberedClaims":
        """The memory of one assignment of one partition, to be closed when the assignment ends."""
        part = RememberedClaims(self)
        self._parts.add(part)
        return part

    def count(self, more: int) -> None:
        """Add to what is used, and make room if it is too much."""
        self.held += more
        if self.held > self.most * (1 + _DEVICE):
            for part in self._parts:
                part.forget_half()

    def end(self, part: "RememberedClaims") -> None:
        """The assignment has ended."""
        self._parts.discard(part)


class RememberedClaims:
    """By device: campaign id -> `detected_at` (epoch s) of the newest known claim.

    A claim denies only later detections, until its delay is over. A record with the claim's own
    time, or an earlier one, may be its owner that is delivered again, and asks Redis. Belongs to
    one assignment of one partition and ends with it.

    Claims of connector campaigns have the negative id and are remembered for a short time only: the
    connector role may give them back. What a company's caps deny is remembered in the same way, by
    these caps. `by_device` is read by others too; only this class changes it.
    """

    def __init__(self, memory: ClaimMemory) -> None:
        self._memory = memory
        self.by_device: dict[str, dict[int, float]] = {}
        self._brief: deque[tuple[float, str, int]] = deque()
        self._is_closed = False

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

    def is_capped(self, claims: Mapping[int, float], caps: bytes, at: float) -> bool:
        """Whether these caps deny a detection at `at` to the device of these claims.

        Like a claim they deny only what is later than the newest notification that they count.
        """
        until = claims.get(capped_key(caps))
        return until is not None and claims.get(_CAPPED_AFTER + hash(caps), inf) < at < until

    def remember(
        self,
        udid: str,
        claims: Mapping[int, float],
        now: float,
        *,
        are_all: bool = False,
        briefly: bool = False,
    ) -> None:
        """Remember claims of a device, times by key (claim_keys), each if it is the newest of its
        campaign.

        With `are_all` they are all that Redis had. Claims of connector campaigns, and those
        remembered `briefly`, are forgotten some seconds after `now`: they may be given back.
        """
        if self._is_closed:
            return
        known = self.by_device.get(udid)
        if known is None:
            known = self.by_device[udid] = {}
        before = len(known)
        if are_all:
            known[READ] = 0.0
        for key, at in claims.items():
            if known.get(key, at) <= at:
                known[key] = at
            if briefly or key < 0:
                self._brief.append((now + _BRIEFLY, udid, key))
        if len(known) > before:
            self._grown(known, before)

    def remember_capped(self, udid: str, caps: bytes, denied: Sequence[int], now: float) -> None:
        """Remember that these caps deny detections after the first of these times (epoch ms) and
        before the second; with the third for some seconds only: a place may be given back."""
        if self._is_closed:
            return
        known = self.by_device.setdefault(udid, {})
        before, (after, until, briefly) = len(known), denied
        for key, at in ((_CAPPED_AFTER, after), (_CAPPED_UNTIL, until)):
            known[key + hash(caps)] = at / 1000
            if briefly:
                self._brief.append((now + _BRIEFLY, udid, key + hash(caps)))
        self._grown(known, before)

    def _grown(self, known: Mapping[int, float], before: int) -> None:
        """Count what was added to a device that had `before` claims."""
        if more := len(known) - before:
            self._memory.count(more if before else more + _DEVICE)
        while self._brief and len(self._brief) > max(1, self._memory.most // 2):
            self._forget_first()

    def forget_expired(self, now: float) -> None:
        """Forget claims whose time is over; the next detection asks Redis again."""
        while self._brief and self._brief[0][0] <= now:
            self._forget_first()

    def forget_half(self) -> None:
        """Forget the devices that have been known longest."""
        for udid in list(islice(self.by_device, (len(self.by_device) + 1) // 2)):
            self._memory.held -= _size(self.by_device.pop(udid))

    def close(self) -> None:
        """Forget all claims, because the assignment has ended."""
        self._is_closed = True
        self._memory.held -= sum(map(_size, self.by_device.values()))
        self._memory.end(self)
        self.by_device.clear()
        self._brief.clear()

    def _forget_first(self) -> None:
        _, udid, key = self._brief.popleft()
        known = self.by_device.get(udid, {})
        if known.pop(key, None) is not None:
            self._memory.held -= 1 if known else 1 + _DEVICE
        if not known:
            self.by_device.pop(udid, None)


def _size(claims: Mapping[int, float]) -> int:
    """How much memory the claims of one device take, in claims."""
    return len(claims) + _DEVICE if claims else 0
