"""The machine of a run: its description, and its use by other processes meanwhile."""

import contextlib
import os
import platform
import resource
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_BUSY_LOAD = 0.7  # a processor, before the run
_BUSY_OTHERS = 0.15  # share of the processors that others had during the run
_CPU, _MEMORY = Path("/proc/cpuinfo"), Path("/proc/meminfo")
_STAT = Path("/proc/stat")
_WORKING, _STEAL = slice(0, 3), 7  # columns of the first line of /proc/stat


class MachineWatch:
    """Watches from its creation. All child processes must have been waited for before `described`
    is called, because only then is their processor time known."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._at = datetime.now(UTC)
        self._load = os.getloadavg()[0]
        self._busy, self._steal = _ticks()
        self._own_processes = _own_seconds()

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
        """The machine, and its use by other processes meanwhile."""
        seconds = max(time.monotonic() - self._begin, 0.1)
        busy, steal = _ticks()
        used = (busy - self._busy) / os.sysconf("SC_CLK_TCK")
        whole = seconds * _processors()
        others = max(0.0, used - (_own_seconds() - self._own_processes)) / whole
        stolen = (steal - self._steal) / os.sysconf("SC_CLK_TCK") / whole
        return {
            "at": self._at.isoformat(timespec="seconds"),
            "seconds": round(seconds),
            "processor": _field(_CPU, "model name") or platform.machine(),
            "processors": _processors(),
            "memory_gib": round(int((_field(_MEMORY, "MemTotal") or "0 kB").split()[0]) / 2**20),
            "python": platform.python_version(),
            "system": platform.platform(),
            "load_before": round(self._load, 2),
            "others_share": round(others, 2),
            "stolen_share": round(stolen, 2),
            "busy": bool(self.warning) or others + stolen > _BUSY_OTHERS,
        }


def sentence(machine: dict[str, Any]) -> str:
    """The text below a table: machine, time, and whether it was busy."""
    text = (
        f"{machine['processors']} processors ({machine['processor']}), Python {machine['python']}, "
        f"{machine['at'][:10]}"
    )
    if not machine["busy"]:
        return f"{text}, at rest."
    return (
        f"{text}. **The machine was busy** (load {machine['load_before']:.1f} before; others had "
        f"{machine['others_share'] + machine['stolen_share']:.0%} of it): believe the ratios of "
        "processor time, not the rates."
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


def _processors() -> int:
    return os.cpu_count() or 1


def _own_seconds() -> float:
    """Processor seconds of this process and of its ended children."""
    of = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, of))


def _ticks() -> tuple[int, int]:
    """Busy and stolen seconds of all processors since the boot."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        columns = [int(each) for each in _STAT.read_text().splitlines()[0].split()[1:]]
        # Interrupts are nobody's, and a run on loopback causes most of them itself.
        return sum(columns[_WORKING]), columns[_STEAL]
    return 0, 0


def _field(file: Path, name: str) -> str | None:
    with contextlib.suppress(OSError):
        for line in file.read_text().splitlines():
            if line.startswith(name):
                return line.partition(":")[2].strip()
    return None
