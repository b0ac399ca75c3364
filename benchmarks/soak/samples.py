"""Samples that are taken every few seconds, from outside of the processes."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.installation.progress import ROLES
from benchmarks.installation.running import Installation

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_MEGABYTE = 1024 * 1024


class SoakSample(NamedTuple):
    """One sample: seconds since the start; lags in records by role (None if unknown);
    megabytes and processors by process; messages a second and seconds since the sample before."""

    at: float
    lags: Mapping[str, int | None]
    memory: Mapping[str, float]
    processor: Mapping[str, float]
    published: float
    notified: float
    latencies: tuple[float | None, float | None]  # p50 and p99


class SoakSampler:
    """Samples the processes of the installation that are named in `kept`."""

    def __init__(self, installation: Installation, kept: Mapping[str, int]) -> None:
        self._installation = installation
        self._kept = kept
        self._begin = self._last = time.time()
        self._used = {name: _seconds_used(pid) for name, pid in kept.items()}
        self._published = installation.stream.published
        self._notified = installation.tally.plain
        self.samples: list[SoakSample] = []

    async def sample(self) -> None:
        """Take one sample."""
        place, last = self._installation, self._last
        lags = await place.progress.lags()
        now = self._last = time.time()
        used = {name: _seconds_used(pid) for name, pid in self._kept.items()}
        published, notified = place.stream.published, place.tally.plain
        seconds = now - last
        latencies = place.tally.take_latencies()
        self.samples.append(
            SoakSample(
                at=now - self._begin,
                lags={role: lags[role] for role in ROLES},
                memory={name: _memory(pid) for name, pid in self._kept.items()},
                processor={name: (used[name] - self._used[name]) / seconds for name in used},
                published=(published - self._published) / seconds,
                notified=(notified - self._notified) / seconds,
                latencies=(quantile(latencies, 0.5), quantile(latencies, 0.99)),
            )
        )
        self._used, self._published, self._notified = used, published, notified


def quantile(ordered: list[float], share: float) -> float | None:
    """The quantile of sorted values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def _memory(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * _PAGE / _MEGABYTE


def _seconds_used(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
