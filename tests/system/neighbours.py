"""Measures the effects of a bad neighbour: company B's latencies, and the process's memory."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.system.rig import Command
from tests.system.topics import TopicSet

MIB = 1024 * 1024
BEYOND_CALM = 0.25  # seconds: what the contract promises
ROUNDS = 4


class Latencies(NamedTuple):
    """B's seconds from detection to notification, alone and beside A."""

    calm: Sequence[float]
    loud: Sequence[float]

    def __str__(self) -> str:
        return (
            f"B's p99 of {len(self.loud)} {1000 * p99(self.loud):.0f} ms beside A "
            f"(at most {1000 * max(self.loud):.0f}), calm {1000 * p99(self.calm):.0f} ms"
        )


def p99(seconds: Sequence[float]) -> float:
    """The 99th percentile."""
    return sorted(seconds)[int(0.99 * (len(seconds) - 1))]


async def assert_not_delayed(measure: Callable[[], Awaitable[Latencies]]) -> None:
    """Assert that A costs B at most BEYOND_CALM.

    A machine that others use as well is noisy; a neighbour that is in the way is so in each round.
    """
    measurements: list[str] = []
    for _ in range(ROUNDS):
        received = await measure()
        print(received)
        if p99(received.loud) - p99(received.calm) < BEYOND_CALM:
            return
        measurements.append(str(received))
    raise AssertionError("; then ".join(measurements))


async def latencies(topics: TopicSet, prefix: bytes) -> list[tuple[float, float]]:
    """When each detection of a device was made, and the seconds until its notification was stored.

    A device's name begins with `prefix` and ends with when it was detected. The broker stamps the
    notifications: `topics.create(broker_time=True)`.
    """
    found = await topics.read("notifications")
    own = [each for each in found if each.key is not None and each.key.startswith(prefix)]
    sent = [(float((each.key or b"").rpartition(b" ")[2]), each) for each in own]
    return [(at, each.timestamp / 1000 - at) for at, each in sent]


class Memory:
    """The memory of a process at the beginning, and its peak since then."""

    def __init__(self, command: Command) -> None:
        self._status = Path(f"/proc/{command.process.pid}/status")
        # What it peaked at while starting is not the question.
        Path(f"/proc/{command.process.pid}/clear_refs").write_text("5")
        self._before = self._read("VmRSS")

    def assert_growth_below(self, most: int) -> None:
        """Assert that the peak lies less than `most` bytes above the beginning."""
        growth = self._read("VmHWM") - self._before
        assert growth < most, f"{growth // MIB} MiB more than {self._before // MIB}"

    def _read(self, name: str) -> int:
        lines = dict(line.split(":", 1) for line in self._status.read_text().splitlines())
        return int(lines[name].split()[0]) * 1024
