"""Measures the effects of a bad neighbour: company B's latencies, and the process's memory."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.system.rig import Command
from tests.system.topics import TopicSet

MIB = 1024 * 1024
BEYOND_CALM = 0.25  # seconds: what the contract promises


def p99(seconds: Iterable[float]) -> float:
    """The 99th percentile."""
    ordered = sorted(seconds)
    return ordered[int(0.99 * (len(ordered) - 1))]


@dataclass(frozen=True, slots=True)
class NeighbourLatencies:
    """B's latencies from detection to notification, alone and beside A."""

    calm: Sequence[float]
    loud: Sequence[float]

    def __str__(self) -> str:
        return (
            f"B's p99 of {len(self.loud)} {1000 * p99(self.loud):.0f} ms beside A "
            f"(at most {1000 * max(self.loud):.0f}), calm {1000 * p99(self.calm):.0f} ms"
        )


async def assert_not_delayed(
    measure: Callable[[], Awaitable[NeighbourLatencies]], rounds: int = 2
) -> NeighbourLatencies:
    """Assert that A costs B at most BEYOND_CALM; returns the latencies of the round that showed it.

    A machine that others use as well is noisy; a neighbour that is in the way is so in each round.
    """
    measurements: list[str] = []
    for _ in range(rounds):
        received = await measure()
        if p99(received.loud) - p99(received.calm) < BEYOND_CALM:
            return received
        measurements.append(str(received))
    raise AssertionError("; then ".join(measurements))


async def latencies(topics: TopicSet, prefix: bytes) -> list[tuple[float, float]]:
    """When each detection of a device was made, and the seconds until its notification was stored.

    A device's name begins with `prefix` and ends with when it was detected. The broker stamps the
    notifications: `topics.create(broker_time=True)`.
    """
    found = await topics.read("notifications")
    own = [each for each in found if each.key.startswith(prefix)]
    sent = [(float(each.key.rpartition(b" ")[2]), each) for each in own]
    return [(at, each.timestamp / 1000 - at) for at, each in sent]


class Memory:
    """The memory of a process at the beginning, and its peak since then."""

    def __init__(self, command: Command) -> None:
        self._status = Path(f"/proc/{command.process.pid}/status")
        # What it peaked at while starting is not the question.
        Path(f"/proc/{command.process.pid}/clear_refs").write_text("5")
        self.before = self._read("VmRSS")

    @property
    def peak(self) -> int:
        """The peak in bytes since the beginning."""
        return self._read("VmHWM")

    def __str__(self) -> str:
        return f"memory {self.before // MIB} to {self.peak // MIB} MiB"

    def assert_growth_below(self, most: int) -> None:
        """Assert that the peak lies less than `most` bytes above the beginning."""
        assert self.peak - self.before < most, str(self)

    def _read(self, name: str) -> int:
        for line in self._status.read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"no {name}")
