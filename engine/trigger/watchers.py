"""Those who watch decisions: what each wants, what it has gathered, and which of them a detection
concerns."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from engine.redis.tail_store import CampaignOutcome, TailedDecision, TailFilter
from engine.trigger.decision_record import SHARED, DecidedDetection
from engine.trigger.grants import Grant
from rules.outcome import Decision

MOST_A_WRITE = 20  # decisions of a process for a watcher
_MOST_IN_ALL = 160
_MOST_COUNTED = 32  # of a batch, where only the number of those left out is wanted


class Watcher:
    """One who watches; `beat_at` is when its last sign of life was seen."""

    def __init__(self, wanted: TailFilter, beat_at: float) -> None:
        self.wanted = wanted
        self.beat_at = beat_at
        self.gathered: list[TailedDecision] = []
        self.left_out = 0
        self.most = MOST_A_WRITE

    @property
    def is_plain(self) -> bool:
        """Whether it wants whatever happens, of its company if it names one."""
        wanted = self.wanted
        return wanted.campaign is None and wanted.udid is None and wanted.reason is None

    @property
    def room(self) -> int:
        """How many more decisions it takes before the next write."""
        return max(0, self.most - len(self.gathered))

    def offer(self, decided: DecidedDetection, now: float) -> bool:
        """Take the decision if it fits and there is room. Whether that was the last room."""
        if not (self.is_plain or _fits(decided, self.wanted)):
            return False
        if not self.room:
            self.left_out += 1
            return False
        self.gathered.append(_told(decided, now, self.left_out))
        self.left_out = 0
        return not self.room


class WatcherTable:
    """Watchers by the company at whose decisions they look; company 0 is that of unknown beacons.

    A watcher that wants all of a company, and has no room, need not look at decisions: they are
    only counted for it. `refresh` is to be called when one has got room, or has none any more.
    """

    def __init__(self, watchers: Collection[Watcher]) -> None:
        self._everywhere = [each for each in watchers if each.wanted.company is None]
        self._groups: dict[int, list[Watcher]] = {}
        for watcher in watchers:
            company = watcher.wanted.company
            if company is not None:
                self._groups.setdefault(company, list(self._everywhere)).append(watcher)
        self.refresh()

    def refresh(self) -> None:
        """Work out which watchers get decisions now, and for which they are only counted."""
        groups = self._groups.items()
        self._looking = {company: group for company, group in groups if _some_look(group)}
        self._all_look = _some_look(self._everywhere)
        nobody_everywhere = bool(self._everywhere) and not self._all_look
        self._some_count = nobody_everywhere or len(self._looking) < len(self._groups)

    @property
    def somebody_looks(self) -> bool:
        """Whether any watcher has to look at decisions; else they are only counted."""
        return self._all_look or bool(self._looking)

    def group_of(self, company_id: int) -> list[Watcher]:
        """Those who watch what is decided for this company."""
        return self._groups.get(company_id, self._everywhere)

    def looking_at(self, companies: Collection[int]) -> dict[int, list[Watcher]]:
        """Those of the companies at whose decisions somebody has to look, with all who watch."""
        if self._all_look:
            return {company: self.group_of(company) for company in companies}
        looking = self._looking
        return {company: looking[company] for company in companies if company in looking}

    def leave_out(self, decisions: Sequence[Decision], looking: Collection[int]) -> None:
        """Count these, but for those of the companies `looking`; of very many about how many."""
        if not self._some_count or not decisions:
            return
        if not (self._groups or looking):
            for watcher in self._everywhere:
                watcher.left_out += len(decisions)
            return
        some = decisions[:: max(1, len(decisions) // _MOST_COUNTED)]
        weight = len(decisions) / len(some)
        counts = Counter(
            id(group)
            for each in some
            if each.company_id not in looking and (group := self.group_of(each.company_id))
        )
        for group in (self._everywhere, *self._groups.values()) if counts else ():
            count = round(counts.get(id(group), 0) * weight)
            for watcher in group if count else ():
                watcher.left_out += count


def share_room(watchers: Collection[Watcher]) -> None:
    """Bound what is gathered for the next write, of each and in all; to be called at a write."""
    busy = sum(bool(each.gathered) for each in watchers)
    most = max(1, min(MOST_A_WRITE, _MOST_IN_ALL // max(1, busy)))
    for each in watchers:
        each.most = most


def first_detections(
    claimed: Sequence[Grant], denied: Sequence[Grant], most: int
) -> tuple[list[Grant], list[Grant]]:
    """The grants of the first `most` detections, with all grants of each."""
    chosen = set[int]()
    for grant in chain(claimed, denied):
        if len(chosen) >= most:
            break
        chosen.add(id(grant.detection))
    return (
        [each for each in claimed if id(each.detection) in chosen],
        [each for each in denied if id(each.detection) in chosen],
    )


def _some_look(group: Collection[Watcher]) -> bool:
    return any(each.room > 0 or not each.is_plain for each in group)


def _fits(decided: DecidedDetection, wanted: TailFilter) -> bool:
    if wanted.udid is not None and wanted.udid != decided.detection.message.device.udid:
        return False
    if wanted.campaign is None and wanted.reason is None:
        return True
    outcomes = list(_outcomes(decided))
    if wanted.campaign is not None:
        outcomes = [each for each in outcomes if wanted.campaign in _names(each)]
        if not outcomes:
            return False
    reasons = {reason for _, _, reason in outcomes} or {decided.reason.value}
    return wanted.reason is None or wanted.reason in reasons


def _outcomes(decided: DecidedDetection) -> Iterator[CampaignOutcome]:
    """Each campaign of the beacon; of a detection that was refused each has that reason."""
    if decided.beacon is None:
        return
    listed = decided.outcomes()
    by_number = {number: reason for reason, numbers in listed.items() for number in numbers}
    for campaign in decided.beacon.campaigns:
        outcome = by_number.get(campaign.id, decided.reason.value)
        yield CampaignOutcome(campaign.id, campaign.name, outcome)


def _told(decided: DecidedDetection, now: float, left_out: int) -> TailedDecision:
    detection, beacon = decided.detection, decided.beacon
    uuid, major, minor = detection.key
    return TailedDecision(
        detection.detected_at,
        now,
        None if beacon is None else beacon.company_reference.id,
        "" if beacon is None else beacon.venue_reference.name,
        f"{uuid}:{major}:{minor}" if beacon is None else beacon.reference.name,
        int(detection.zone),
        decided.reason.value,
        [] if decided.reason in SHARED else list(_outcomes(decided)),
        left_out,
    )


def _names(outcome: CampaignOutcome) -> tuple[str, str]:
    number, name, _ = outcome
    return str(number), name.casefold()
