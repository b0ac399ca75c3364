"""Describes the machine of a benchmark, and measures processes."""

import contextlib
import os
import platform
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_BUSY_LOAD = 0.7  # a processor, before the run


class MachineWatch:
    """Describes the machine during a benchmark; create it when the benchmark begins."""

    def __init__(self) -> None:
        self._begin, self._at = time.monotonic(), datetime.now(UTC)
        self._load, self._stolen = os.getloadavg()[0], _stolen_seconds()

    @property
    def warning(self) -> str:
        """A warning if the machine is busy before the run, else empty."""
        if self._load / _processors() <= _BUSY_LOAD:
            return ""
        return (
            f"The machine is busy (load {self._load:.1f}): believe the ratios of processor time, "
            "not the rates."
        )

    def described(self) -> dict[str, Any]:
        """The machine as it was before the run, and what its host took meanwhile."""
        seconds = max(time.monotonic() - self._begin, 0.1)
        return {
            "at": self._at.isoformat(timespec="seconds"),
            "seconds": round(seconds),
            "processor": _processor() or platform.machine(),
            "processors": _processors(),
            "python": platform.python_version(),
            "load_before": round(self._load, 2),
            "stolen": round((_stolen_seconds() - self._stolen) / seconds / _processors(), 2),
            "warning": self.warning,
        }


def sentence(machine: dict[str, Any]) -> str:
    """The text below a table: machine, time, and whether it was busy."""
    return (
        f"{machine['processors']} processors ({machine['processor']}), Python {machine['python']}, "
        f"{machine['at'][:10]}, {machine['stolen']:.0%} of the time stolen. {machine['warning']}"
    )


def first_processor() -> int:
    """The processor that subjects have alone; the servers use the others."""
    return min(os.sched_getaffinity(1))


@contextlib.contextmanager
def on_the_last_processor() -> Iterator[None]:
    """Keep this process and its children off the first processor within the context."""
    mine = os.sched_getaffinity(0)
    if len(mine) > 1:
        os.sched_setaffinity(0, {max(mine)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


def peak_bytes(process: int | str = "self") -> int:
    """The most memory that a process had at a time, in bytes.

    (getrusage also counts what its parent had when it began this process.)
    """
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def processor_seconds(process: int) -> float:
    """The processor time that a process has used."""
    columns = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(columns[11]) + int(columns[12])) / os.sysconf("SC_CLK_TCK")


def _processors() -> int:
    return os.cpu_count() or 1


def _stolen_seconds() -> float:
    columns = Path("/proc/stat").read_text().splitlines()[0].split()
    return int(columns[8]) / os.sysconf("SC_CLK_TCK")


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "")
