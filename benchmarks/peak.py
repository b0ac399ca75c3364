"""The memory of a measured process."""

from pathlib import Path

_STATUS = Path("/proc/self/status")
_KIB = 1024


def peak_bytes() -> int:
    """The most memory that this process had at a time, in bytes.

    (getrusage also counts what its parent had when it began this process.)
    """
    lines = _STATUS.read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * _KIB for line in lines if line.startswith("VmHWM:"))
