"""The step `claim`: at most one send of a campaign to a device within the campaign's delay.

Redis decides. The process remembers the answers, so that a device that stays beside a beacon costs
no round trip. The first request for a device reads all its claims, so that a device that goes from
beacon to beacon requests only claims that it does not have.
"""

import time
from collections.abc import Callable, Sequence

from engine.process.metrics import Metrics
from engine.process.retry import retry
from engine.redis.claims import Claims, ClaimUpdater
from engine.trigger import grants as interpreted
from engine.trigger.claim_memory import RememberedClaims
from engine.trigger.grants import Grant, Granting

# How long the claim of a connector campaign, or of one whose message was too large, is remembered:
# it may have been given back.
_BRIEFLY = 5.0


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

    async def take(
        self, grants: list[Grant], remembered: RememberedClaims
    ) -> tuple[list[Grant], list[Grant]]:
        """The grants that hold their claim or need none, and the denied ones, in one round trip.

        Waits while Redis does not answer.
        """
        capped = [grant for grant in grants if grant.campaign.delay > 0]
        if not capped:
            return grants, []
        devices = self._requests_of(capped)
        unread = {each.udid for each in devices if not remembered.was_read(each.udid)}
        now = self._clock()
        answers = await retry(
            lambda: self._claims.take_of_devices(devices, now, unread), self._redis_errors, "claims"
        )
        for udid, claims in answers.read.items():
            remembered.read(udid, claims)
        denied: list[Grant] = []
        for grant, forbidden_by in zip(capped, answers.forbidden_by, strict=True):
            at = grant.detection.detected_at
            if forbidden_by is not None:
                denied.append(grant)
                # A claim that is later than the record that it denies is not remembered: after a
                # crash its owner may be among the next records, and must request the claim again.
                if forbidden_by > at:
                    continue
                at = forbidden_by
            # The connector role may give the claim of a call back, or shorten it when the service
            # declines.
            until = now + _BRIEFLY if grant.is_call else None
            remembered.remember(grant.device.udid, grant.campaign.id, at, until)
        if not denied:
            return grants, []
        ids = {grant.notification_id for grant in denied}
        return [grant for grant in grants if grant.notification_id not in ids], denied

    async def give_back(self, grants: Sequence[Grant], remembered: RememberedClaims) -> None:
        """Give back the claims of grants whose messages could not be published.

        This process still remembers the claims for a while, so that a device that stays does not
        lead to a dead letter every second.
        """
        capped = [grant for grant in grants if grant.campaign.delay > 0]
        until = self._clock() + _BRIEFLY
        for grant in capped:
            at = grant.detection.detected_at
            remembered.remember(grant.udid, grant.campaign.id, at, until)
        returned = [grant.returned_claim() for grant in capped]
        await retry(lambda: self._updater.apply(returned), self._redis_errors, "claims")
