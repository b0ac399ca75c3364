"""Claims by brute force: every grant is kept, and each request is compared with all of them.

A claim denies detections before its detected_at plus the delay; the record that owns a claim gets
it again.
"""

from tests.redis.claim_requests import ClaimRequest


class ClaimsOracle:
    """The answers that `Claims` must give, from a list of grants that only grows."""

    def __init__(self) -> None:
        self._grants: dict[tuple[int, str], list[tuple[bytes, float]]] = {}

    def take(self, request: ClaimRequest) -> float | None:
        """None when granted, else the detected_at of a grant that forbids it.

        The newest of those not after it, else the newest.
        """
        forbids = self.would_forbid(request)
        if forbids is None:
            grants = self._grants.setdefault((request.campaign_id, request.udid), [])
            grants.append((request.notification_id, request.detected_at))
        return forbids

    def would_forbid(self, request: ClaimRequest) -> float | None:
        """The answer; nothing is granted."""
        grants = self._grants.get((request.campaign_id, request.udid), [])
        if any(owner == request.notification_id for owner, _ in grants):
            return None
        forbidding = [at for _, at in grants if request.detected_at < at + request.delay]
        before = [at for at in forbidding if at <= request.detected_at]
        return max(before or forbidding, default=None)
