"""Reads the engine's figures from its metrics port."""

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from math import inf

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

_DEADLINE = 2.0

Buckets = list[tuple[float, float]]


@dataclass(frozen=True)
class EngineFigures:
    """The counts so far.

    They are detections by the reason of their decision, campaigns held back by their cache delay,
    and the latency histogram as (upper bound in s, count below).
    """

    detections: dict[str, int] = field(default_factory=dict)
    throttled: int = 0
    latency: Buckets = field(default_factory=list)

    @property
    def decided(self) -> int:
        """The number of decided detections."""
        return sum(self.detections.values())

    def latency_quantile(self, q: float) -> float | None:
        """The seconds from detected_at to the acknowledged message that a share `q` stays below.

        Interpolated within its bucket, as Prometheus does; None without messages.
        """
        return quantile(self.latency, q)


def quantile(buckets: Buckets, q: float) -> float | None:
    """The `q` quantile of a cumulative histogram; in the last, open bucket its lower bound."""
    if not buckets or not buckets[-1][1]:
        return None
    rank = q * buckets[-1][1]
    low, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            if bound == inf or count == below:
                return low
            return low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    return low


def read_figures(text: str) -> EngineFigures:
    """The figures in the text of /metrics."""
    families = {family.name: family for family in text_string_to_metric_families(text)}
    decisions = _by_label(families["proximity_decisions"], "reason")
    latency = families["proximity_detection_to_notification_seconds"]
    return EngineFigures(
        detections=_by_label(families["proximity_detections"], "reason"),
        throttled=decisions.get("throttled", 0),
        latency=sorted(
            (float(sample.labels["le"]), sample.value)
            for sample in latency.samples
            if sample.name.endswith("_bucket")
        ),
    )


async def fetch_figures(port: int) -> EngineFigures:
    """The figures of the engine on this machine. Raises OSError."""
    return read_figures(await asyncio.to_thread(_get, port, "metrics"))


async def is_ready(port: int) -> bool:
    """Whether /readyz answers 200."""
    try:
        await asyncio.to_thread(_get, port, "readyz")
    except (OSError, HTTPException):
        return False
    return True


def _get(port: int, path: str) -> str:
    # Not urllib.request, which would use a proxy of the environment even for this machine.
    connection = HTTPConnection("127.0.0.1", port, timeout=_DEADLINE)
    try:
        connection.request("GET", f"/{path}")
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    if answer.status != HTTPStatus.OK:
        raise OSError(f"/{path} of port {port} answers {answer.status}")
    return text


def _by_label(family: Metric, label: str) -> dict[str, int]:
    samples = [s for s in family.samples if s.name.endswith("_total")]
    return {s.labels[label]: round(s.value) for s in samples if s.value}
