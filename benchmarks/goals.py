"""`python -m benchmarks.goals`: compares the figures of a run of the benchmarks with the goals.

Most goals are ratios of the product's figure to an alternative's, both measured in the same round;
the median of the rounds counts. If a benchmark was not run, its goals are shown as not measured.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from benchmarks.figures import Findings, Sheet, Spread, add_json, finish
from benchmarks.lineup import FLOOR, PYTHON, ROOT, TRIGGER
from benchmarks.report import Rounds, cost, rate
from benchmarks.store import read_all

_FIGURES = ROOT / ".cache" / "bench" / "figures" / "figures.json"
_HALF = 50  # per cent of capacity

Found = Mapping[str, Findings]


class Goal(NamedTuple):
    """A bound for a measured value.

    The value must be at least `wanted`, or at most `wanted` if `most` is true. `measured` takes
    the value from the figures, and raises KeyError if they do not include it.
    """

    meaning: str
    wanted: float
    measured: Callable[[Found], float]
    most: bool = False

    def row(self, found: Found) -> list[str]:
        """The goal, its bound, the measured value, and whether the goal is reached."""
        bound = f"{'at most' if self.most else 'at least'} {self.wanted:g}"
        try:
            value = self.measured(found)
        except (KeyError, StopIteration, ValueError):
            return [self.meaning, bound, "not measured", ""]
        is_reached = value <= self.wanted if self.most else value >= self.wanted
        form = ",.0f" if value == int(value) or value >= 100 else ".2f"
        return [self.meaning, bound, f"{value:{form}}", "yes" if is_reached else "**no**"]


def main() -> None:
    """Read the figures and print the table of the goals."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.goals", description=__doc__)
    parser.add_argument("figures", type=Path, nargs="?", default=_FIGURES)
    add_json(parser)
    arguments = parser.parse_args()
    found = compared(read_all(arguments.figures))
    if found is None:
        raise SystemExit(f"{arguments.figures} has no figures; `make bench` measures them")
    finish(Console(), found, arguments.json)


def compared(found: Found) -> Findings | None:
    """The table of all goals; None if no benchmark has figures."""
    machines = [each.machine for each in found.values()]
    if not machines:
        return None
    columns = ["goal", "wanted", "measured", "reached"]
    sheet = Sheet("Goals", columns, [goal.row(found) for goal in GOALS])
    busiest = max(machines, key=lambda machine: bool(machine["busy"]))
    return Findings("goals", "python -m benchmarks.goals", busiest, {}, {"table": sheet})


def _trigger(workload: str) -> Callable[[Found], Rounds]:
    def rounds(found: Found) -> Rounds:
        part: Any = found[workload].rounds
        of: Rounds = part[workload]
        return of

    return rounds


def _over(workload: str, other: str) -> Callable[[Found], float]:
    def ratio(found: Found) -> float:
        rounds = _trigger(workload)(found)
        return _median(rate, rounds[TRIGGER], rounds[other])

    return ratio


def _over_python(workload: str) -> Callable[[Found], float]:
    def ratio(found: Found) -> float:
        rounds = _trigger(workload)(found)
        others = [rounds[each.name] for each in PYTHON if rounds.get(each.name)]
        return min(_median(rate, rounds[TRIGGER], other) for other in others)

    return ratio


def _ratio_to_go(workload: str) -> Callable[[Found], float]:
    def ratio(found: Found) -> float:
        rounds = _trigger(workload)(found)
        return _median(cost, rounds[TRIGGER], rounds["go"])

    return ratio


def _whole(found: Found) -> float:
    rounds: Any = found["whole"].rounds
    return _median(lambda each: each["processor_us"], rounds["loops"], rounds["product"])


def _crash(field: str) -> Callable[[Found], float]:
    def worst(found: Found) -> float:
        rounds: Any = found["crash"].rounds
        return float(max(each[field] for each in rounds[TRIGGER]))

    return worst


def _workers(found: Found) -> float:
    rounds: Any = found["workers"].rounds
    return _median(lambda each: each["rate"], rounds["2"], rounds["1"])


def _growth(series: str) -> Callable[[Found], float]:
    def ratio(found: Found) -> float:
        rounds: Any = found["growth"].rounds
        variants = list(rounds[series].values())
        return _median(rate, variants[-1], variants[0])

    return ratio


def _latency(found: Found) -> float:
    rounds: Any = found["latency"].rounds
    return next(float(each["latency"]["p99"]) for each in rounds if each["share"] == _HALF)


def _recorder(workload: str) -> Callable[[Found], float]:
    def ratio(found: Found) -> float:
        rounds: Any = found["recorder"].rounds
        of = rounds[workload]
        return _median(lambda each: each["rows"] / each["seconds"], of["recorder"], of["copy"])

    return ratio


def _connector(found: Found) -> float:
    rounds: Any = found["connector"].rounds
    return _median(lambda each: each["calls"] / each["seconds"], rounds["role"], rounds["h11"])


def _interface(found: Found) -> float:
    rounds: Any = found["interface"].rounds
    own = next(results for name, results in rounds.items() if name.startswith("GET"))
    return _median(lambda each: each["rate"], own, rounds["bare"])


def _median(figure: Callable[[Any], float], own: Iterable[Any], other: Iterable[Any]) -> float:
    """The median, over the rounds, of the product's figure divided by the other's."""
    pairs = zip(own, other, strict=False)
    return Spread(figure(mine) / figure(theirs) for mine, theirs in pairs).median


GOALS = (
    Goal("dwell, over the floor (getmany and decode)", 0.5, _over("dwell", FLOOR)),
    Goal("dwell, over the best Python alternative", 8, _over_python("dwell")),
    Goal("scatter, over the best Python alternative", 2.5, _over_python("scatter")),
    Goal("steady, over the best Python alternative", 4, _over_python("steady")),
    Goal("dwell, over Kafka Streams warm", 1, _over("dwell", "streams-warm")),
    Goal("scatter, over Kafka Streams warm", 2, _over("scatter", "streams-warm")),
    Goal("dwell, times the processor time of Go", 2.5, _ratio_to_go("dwell"), most=True),
    Goal("scatter, times the processor time of Go", 2, _ratio_to_go("scatter"), most=True),
    Goal("steady, times the processor time of Go", 2.5, _ratio_to_go("steady"), most=True),
    Goal("whole job, processor time of the loops over ours", 1.5, _whole),
    Goal("killed: notifications lost", 0, _crash("lost"), most=True),
    Goal("killed: notifications twice, under another id", 0, _crash("other_id"), most=True),
    Goal("two workers over one", 1.7, _workers),
    Goal("most closed campaigns over none", 0.9, _growth("campaigns")),
    Goal("most beacons over 1,000", 0.8, _growth("beacons")),
    Goal("p99 to the notification at half of capacity, ms", 50, _latency, most=True),
    Goal("recorder over a bare COPY, dwell", 0.5, _recorder("dwell")),
    Goal("recorder over a bare COPY, sweep", 0.25, _recorder("sweep")),
    Goal("connector role over a bare loop of h11", 0.7, _connector),
    Goal("interface, GET of a record over a bare route", 0.25, _interface),
)


if __name__ == "__main__":
    main()
