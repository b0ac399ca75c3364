"""The step `claim`: at most one send of a campaign to a device within the campaign's delay.

Redis decides. The process remembers the answers, so that a device that stays beside a beacon costs
no round trip. The first request for a device reads all its claims, so that a device that goes from
beacon to beacon requests only claims that it does not have.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

from engine.process.metrics import Metrics
from engine.process.retry import retry
from engine.redis.claim_wire import DeviceRequests
from engine.redis.claims import Claims, ClaimUpdater
from engine.trigger import grants as interpreted
from engine.trigger.claim_memory import RememberedClaims
from engine.trigger.grants import Grant, Granting

# How long the claim of a connector campaign, or of one whose message was too large, is remembered:
# it may have been given back.
_BRIEFLY = 5.0
_MOST_READ = 256  # devices whose claims are all read in one turn, in calls that bound the claims


class Claimed(NamedTuple):
    """The grants that hold their claim or need none, and the denied ones."""

    granted: list[Grant]
    denied: list[Grant]


class GrantsOfLane(NamedTuple):
    """The grants of one partition, and what is remembered for it."""

    grants: list[Grant]
    remembered: RememberedClaims


class ClaimStep:
    """Takes the claims of grants and gives claims back. `clock` in epoch seconds."""

    def __init__(
        self,
        *,
        claims: Claims,
        updater: ClaimUpdater,
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
        granting: Granting = interpreted,
    ) -> None:
        self._requests_of = granting.requests_of
        self._claims = claims
        self._updater = updater
        self._redis_errors = metrics.redis_errors
        self._clock = clock

    async def take(self, lanes: Sequence[GrantsOfLane]) -> list[Claimed]:
        """The claimed grants of each lane, in one round trip for all.

        Waits while Redis does not answer.
        """
        parts = [_LaneClaims(lane, self._requests_of) for lane in lanes]
        devices = list(_of_all(parts))
        if not devices:
            return [Claimed(lane.grants, []) for lane in lanes]
        unread = set(islice(chain.from_iterable(part.unread for part in parts), _MOST_READ))
        now = self._clock()
        answers = await retry(
            lambda: self._claims.take_of_devices(devices, now, unread), self._redis_errors, "claims"
        )
        in_order = iter(answers.forbidden_by)
        return [part.noted(in_order, answers.read, now) for part in parts]

    async def give_back(self, grants: Sequence[Grant], remembered: RememberedClaims) -> None:
        """Give back the claims of grants whose messages could not be published.

        This process still remembers the claims for a while, so that a device that stays does not
        lead to a dead letter every second.
        """
        capped = _capped(grants)
        until = self._clock() + _BRIEFLY
        if not remembered.is_closed:
            for grant in capped:
                at = grant.detection.detected_at
                remembered.remember(grant.udid, grant.campaign.id, at, until)
        returned = [grant.returned_claim() for grant in capped]
        await retry(lambda: self._updater.apply(returned), self._redis_errors, "claims")


class _LaneClaims:
    """The claims that the grants of one lane need."""

    def __init__(
        self, lane: GrantsOfLane, requests_of: Callable[[list[Grant]], list[DeviceRequests]]
    ) -> None:
        self._grants, self._remembered = lane
        self.capped = _capped(lane.grants)
        self.devices = requests_of(self.capped)
        was_read = lane.remembered.was_read
        self.unread = {each.udid for each in self.devices if not was_read(each.udid)}

    def noted(
        self,
        forbidden_by: Iterator[float | None],
        read: Mapping[str, Mapping[int, float]],
        now: float,
    ) -> Claimed:
        """Take this lane's answers, and remember them unless its assignment has ended."""
        answers = list(islice(forbidden_by, len(self.capped)))
        if not self._remembered.is_closed:
            for udid, _, _ in self.devices:
                if udid in self.unread and udid in read:
                    self._remembered.read(udid, read[udid])
            self._remember(answers, now)
        if answers.count(None) == len(answers):
            return Claimed(self._grants, [])
        both = zip(self.capped, answers, strict=True)
        denied = [grant for grant, forbidden_by in both if forbidden_by is not None]
        ids = {grant.notification_id for grant in denied}
        return Claimed([each for each in self._grants if each.notification_id not in ids], denied)

    def _remember(self, answers: Sequence[float | None], now: float) -> None:
        remember = self._remembered.remember
        for grant, forbidden_by in zip(self.capped, answers, strict=True):
            at = grant.detection.detected_at
            if forbidden_by is not None:
                # A claim that is later than the record that it denies is not remembered: after a
                # crash its owner may be among the next records, and must request the claim again.
                if forbidden_by > at:
                    continue
                at = forbidden_by
            # The connector role may give the claim of a call back, or shorten it when the service
            # declines.
            until = now + _BRIEFLY if grant.is_call else None
            remember(grant.device.udid, grant.campaign.id, at, until)


def _capped(grants: Iterable[Grant]) -> list[Grant]:
    return [grant for grant in grants if grant.campaign.delay > 0]


def _of_all(parts: Iterable[_LaneClaims]) -> Iterator[DeviceRequests]:
    """The requests of all lanes; their positions count through all lanes."""
    before = 0
    for part in parts:
        if before == 0:
            yield from part.devices
        else:
            for udid, positions, packed in part.devices:
                yield DeviceRequests(udid, [before + each for each in positions], packed)
        before += len(part.capped)
