"""Judges a run: memory and lag must be flat, and all counts exact."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from benchmarks.soak.samples import SoakSample

# Between the middle third and the last one of a run. What a process remembers (claims, beacons,
# devices) is full after the first third.
_MEMORY_SHARE, _MEMORY_MEGABYTES = 0.05, 6.0
# A role that keeps up is so little behind, whatever happened before. (The recorder reads what comes
# of detections as well: two records of each.)
_LAG_SECONDS = 2.0
# A process that is killed holds its partitions until its session has ended, and then others start.
_LONGEST_LAG_SECONDS = 60.0
_EDIT_SECONDS = 30.0
_FEWEST = 9


class Check(NamedTuple):
    """A condition, and the measured value."""

    name: str
    found: str
    is_well: bool


def judge_samples(samples: Sequence[SoakSample], rate: float) -> Iterator[Check]:
    """Check memory and lag."""
    if len(samples) < _FEWEST:
        yield Check("samples", f"{len(samples)}: too few to judge", is_well=False)
        return
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]
    for name in samples[0].memory:
        before = median(each.memory[name] for each in middle)
        after = median(each.memory[name] for each in last)
        bound = before * (1 + _MEMORY_SHARE) + _MEMORY_MEGABYTES
        found = f"{before:.0f} MB in the middle third, {after:.0f} MB in the last"
        yield Check(f"memory of {name}", found, after <= bound)
    for role in samples[0].lags:
        yield _lag(role, middle, last, rate)
        known = [lag for each in samples if (lag := each.lags[role]) is not None]
        most = max(known, default=0)
        found = f"{most:,} records, {most / rate:.0f} s of the load"
        yield Check(f"largest lag of {role}", found, most <= _LONGEST_LAG_SECONDS * rate)


def judge_edits(effects: Sequence[float], unseen: int) -> Check:
    """From the interface's answer to the first notification with the edit, in seconds. One that is
    followed by the next edit too soon need not be seen."""
    if not effects:
        return Check("edits", "none has taken effect", is_well=False)
    slowest = max(effects)
    found = f"{len(effects)} seen, the slowest after {slowest:.1f} s; {unseen} never alone"
    return Check("edits take effect", found, slowest <= _EDIT_SECONDS and unseen < len(effects))


def _lag(role: str, middle: Sequence[SoakSample], last: Sequence[SoakSample], rate: float) -> Check:
    before, after = (
        median([lag for each in part if (lag := each.lags[role]) is not None] or [0])
        for part in (middle, last)
    )
    found = f"{before:,.0f} records in the middle third, {after:,.0f} in the last"
    return Check(f"lag of {role}", found, after <= before + _LAG_SECONDS * rate)
