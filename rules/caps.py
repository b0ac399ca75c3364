"""Frequency caps: how many notifications of a company a device may get within any stretch of time.

Times are those of detections, in epoch seconds, in order. scripts/caps.lua has the same rule for
live detections.
"""

from bisect import bisect_right
from collections.abc import Sequence

from rules.model import Cap


def refusing_cap(sent: Sequence[float], at: float, caps: Sequence[Cap]) -> Cap | None:
    """The cap that refuses one more notification at `at` for longest; None if all allow it."""
    longest = max(caps, key=lambda cap: _opens(sent, at, cap), default=None)
    return longest if longest is not None and _opens(sent, at, longest) > at else None


def next_place(sent: Sequence[float], at: float, caps: Sequence[Cap]) -> float:
    """The first moment from `at` on at which all caps allow one more notification."""
    while (cap := refusing_cap(sent, at, caps)) is not None:
        at = _opens(sent, at, cap)
    return at


def _opens(sent: Sequence[float], at: float, cap: Cap) -> float:
    """When the full stretch around `at` ends; `at` if none is full."""
    most, before = cap.most, bisect_right(sent, at)
    opens = at
    for first in range(max(0, before - most), min(before, len(sent) - most) + 1):
        if max(at, sent[first + most - 1]) - min(at, sent[first]) < cap.seconds:
            opens = sent[first] + cap.seconds
    return opens
