"""What a run found: medians with their spread, ratios first; as tables and as JSON."""

import os
import platform
import statistics
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

Result = dict[str, float]
Rounds = dict[str, list[Result]]  # by subject; the results of the same rounds

_BUSY = 0.7  # load a processor before the run, from which on the figures are doubtful


def machine() -> dict[str, Any]:
    """The machine as it is before the run."""
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "processors": processors,
        "python": platform.python_version(),
        "system": platform.platform(),
        "load_before": round(load, 2),
        "busy": load / processors > _BUSY,
    }


def rate(result: Result) -> float:
    """Detections a second."""
    return result["records"] / result["seconds"]


def cost(result: Result) -> float:
    """Microseconds of processor time a detection."""
    return 1e6 * result["seconds_processor"] / result["records"]


class Figure:
    """Median, least and most of some rounds."""

    def __init__(self, values: Iterable[float]) -> None:
        ordered = sorted(values)
        self.median = statistics.median(ordered)
        self.least, self.most = ordered[0], ordered[-1]

    def __str__(self) -> str:
        form = ",.0f" if self.median >= 100 else ".1f" if self.median >= 10 else ".2f"
        if self.least == self.most:
            return format(self.median, form)
        return f"{self.median:{form}} ({self.least:{form}} to {self.most:{form}})"

    def as_json(self) -> dict[str, float]:
        """For the file."""
        return {"median": self.median, "least": self.least, "most": self.most}


def ratios(rounds: Rounds) -> dict[str, Figure]:
    """The trigger beside the others, round by round. Above 1 the trigger is ahead."""
    found: dict[str, Figure] = {}
    trigger = rounds.get("trigger", [])
    for name in rounds:
        if trigger and name != "trigger":
            pairs = list(zip(trigger, rounds[name], strict=True))
            found[f"rate over {name}"] = Figure(rate(own) / rate(other) for own, other in pairs)
            found[f"processor time of {name} over ours"] = Figure(
                cost(other) / cost(own) for own, other in pairs
            )
    return found


def print_tables(console: Console, workloads: Mapping[str, Rounds]) -> None:
    """Ratios, then what they are made of."""
    first = Table("workload", "ratio", "median (least to most)", title="the trigger beside others")
    then = Table("workload", "subject", "detections/s", "processor, us each", "MiB", "notified")
    for workload, rounds in workloads.items():
        for name, figure in ratios(rounds).items():
            first.add_row(workload, name, str(figure))
        for subject, results in rounds.items():
            then.add_row(workload, subject, *_cells(results))
    console.print(first)
    console.print(then)


def _cells(results: list[Result]) -> list[str]:
    peak = max(each.get("peak_bytes", 0.0) for each in results) / 2**20
    return [
        str(Figure(map(rate, results))),
        str(Figure(map(cost, results))),
        f"{peak:,.0f}",
        f"{results[-1].get('notifications', 0):,.0f}",
    ]


def as_json(
    machine_: dict[str, Any],
    options: Mapping[str, Any],
    workloads: Mapping[str, Rounds],
) -> dict[str, Any]:
    """All that was measured."""
    return {
        "machine": machine_,
        "options": dict(options),
        "workloads": {
            workload: {
                "ratios": {name: each.as_json() for name, each in ratios(rounds).items()},
                "subjects": {
                    subject: {
                        "detections_a_second": Figure(map(rate, results)).as_json(),
                        "processor_us": Figure(map(cost, results)).as_json(),
                        "rounds": results,
                    }
                    for subject, results in rounds.items()
                },
            }
            for workload, rounds in workloads.items()
        },
    }
