"""Claims that this process knows of, so that a device standing at a beacon costs no round trip."""

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

_NOTHING: Mapping[int, float] = MappingProxyType({})


class HeldClaims:
    """Per device: campaign id -> `detected_at` (epoch s) of the newest claim known.

    Belongs to one assignment of one partition and dies with it: a record delivered again after
    a rebalance must ask Redis, which knows that the claim is its own. Bounded: the devices not
    heard of for longest are forgotten, a generation at a time, and ask Redis again.
    """

    def __init__(self, most_devices: int) -> None:
        self._half = max(1, most_devices // 2)
        self._young: dict[str, dict[int, float]] = {}
        self._old: dict[str, dict[int, float]] = {}
        self._brief: deque[tuple[float, str, int]] = deque()

    def of(self, udid: str) -> Mapping[int, float]:
        """The claims held for one device."""
        claims = self._young.get(udid)
        if claims is not None:
            return claims
        claims = self._old.get(udid)
        if claims is None:
            return _NOTHING
        self._keep(udid, claims)
        return claims

    def hold(
        self, udid: str, campaign_id: int, detected_at: float, until: float | None = None
    ) -> None:
        """Remember a claim; the newest counts. With `until`, `expire` forgets it from then on."""
        claims = self._young.get(udid)
        if claims is None:
            claims = self._old.get(udid) or {}
            self._keep(udid, claims)
        if detected_at > claims.get(campaign_id, 0.0):
            claims[campaign_id] = detected_at
        if until is not None:
            self._brief.append((until, udid, campaign_id))

    def expire(self, now: float) -> None:
        """Forget the claims held only until `now`: the next detection asks Redis again."""
        while self._brief and self._brief[0][0] <= now:
            _, udid, campaign_id = self._brief.popleft()
            for generation in (self._young, self._old):
                generation.get(udid, {}).pop(campaign_id, None)

    def _keep(self, udid: str, claims: dict[int, float]) -> None:
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[udid] = claims
