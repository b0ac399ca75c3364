"""The step `claim`: at most one send of a campaign to a device within the campaign's delay.

Redis decides; what it has answered is remembered, so that a device that stays beside a beacon
costs no round trip. With the first claim that a device asks for, all its claims are read, so that
a device that goes from beacon to beacon asks for what it has not been sent yet.
"""

import time
from collections.abc import Callable, Sequence

from engine.process.metrics import Metrics
from engine.process.retry import retry
from engine.redis.claims import Claims, ClaimUpdater
from engine.trigger.claim_memory import RememberedClaims
from engine.trigger.grants import Grant

# How long the claim of a connector campaign, or of one whose message was too large, is taken
# for granted: it may have been given back.
_BRIEFLY = 5.0


class ClaimStep:
    """Takes the claims of grants and gives them back. `clock` in epoch seconds."""

    def __init__(
        self,
        *,
        claims: Claims,
        updater: ClaimUpdater,
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._claims = claims
        self._updater = updater
        self._redis_errors = metrics.redis_errors
        self._clock = clock

    async def take(
        self, grants: list[Grant], remembered: RememberedClaims
    ) -> tuple[list[Grant], list[Grant]]:
        """Those that hold their claim or need none, and those denied, in one round trip.

        Waits for as long as Redis does not answer.
        """
        capped = [grant for grant in grants if grant.campaign.delay > 0]
        if not capped:
            return grants, []
        requests = [grant.claim_request() for grant in capped]
        udids = {request.udid for request in requests}
        unread = {udid for udid in udids if not remembered.was_read(udid)}
        now = self._clock()
        answers = await retry(
            lambda: self._claims.take_and_read(requests, now, unread), self._redis_errors, "claims"
        )
        for udid, claims in answers.read.items():
            remembered.read(udid, claims)
        denied: list[Grant] = []
        for grant, forbidden_by in zip(capped, answers.forbidden_by, strict=True):
            if forbidden_by is None:
                self._remember(grant, grant.detection.detected_at, now, remembered)
                continue
            denied.append(grant)
            # A claim of a later time than the record that it forbids is not remembered: after a
            # crash its owner may be among the records that follow, and has to ask for it again.
            if forbidden_by <= grant.detection.detected_at:
                self._remember(grant, forbidden_by, now, remembered)
        if not denied:
            return grants, []
        ids = {grant.notification_id for grant in denied}
        return [grant for grant in grants if grant.notification_id not in ids], denied

    async def give_back(self, grants: Sequence[Grant], remembered: RememberedClaims) -> None:
        """For grants whose message could not leave: what is sent later may have their claims.

        This process remembers them for a while, so that a device that stays does not make a
        dead letter a second.
        """
        capped = [grant for grant in grants if grant.campaign.delay > 0]
        until = self._clock() + _BRIEFLY
        for grant in capped:
            at = grant.detection.detected_at
            remembered.remember(grant.udid, grant.campaign.id, at, until)
        returned = [grant.returned_claim() for grant in capped]
        await retry(lambda: self._updater.apply(returned), self._redis_errors, "claims")

    def _remember(
        self, grant: Grant, claimed_at: float, now: float, remembered: RememberedClaims
    ) -> None:
        """A connector campaign's claim only briefly: the connector role may give it back, or
        shorten it when the customer declines."""
        until = now + _BRIEFLY if grant.is_call else None
        remembered.remember(grant.udid, grant.campaign.id, claimed_at, until)
