"""The results of a run of the workloads: ratios first, then the figures behind them."""

from collections.abc import Iterator, Mapping

from benchmarks.figures import Chart, Sheet, Spread
from benchmarks.lineup import FLOOR, TRIGGER

Result = dict[str, float]
Rounds = dict[str, list[Result]]  # by subject; the results of the same rounds


def rate(result: Result) -> float:
    """Detections a second."""
    return result["records"] / result["seconds"]


def cost(result: Result) -> float:
    """Microseconds of processor time a detection."""
    return 1e6 * result["seconds_processor"] / result["records"]


def ratios(rounds: Rounds) -> dict[str, tuple[Spread, Spread]]:
    """The trigger compared with each other subject, round by round: rate over rate, and processor
    time of the other over ours. Above 1 the trigger is better."""
    trigger = rounds.get(TRIGGER, [])
    found = {}
    for name, results in rounds.items():
        pairs = list(zip(trigger, results, strict=False))
        if pairs and name != TRIGGER:
            found[name] = (
                Spread(rate(own) / rate(other) for own, other in pairs),
                Spread(cost(other) / cost(own) for own, other in pairs),
            )
    return found


def sheets(workloads: Mapping[str, Rounds]) -> dict[str, Sheet]:
    """The tables: of ratios, and of each workload's figures."""
    first = [
        [workload, name, str(rates), str(costs)]
        for workload, rounds in workloads.items()
        for name, (rates, costs) in ratios(rounds).items()
    ]
    columns = ["workload", "the trigger beside", "rate over its", "its processor time over ours"]
    found = {"ratios": Sheet("The trigger beside others: above 1 it is ahead", columns, first)}
    columns = ["workload", "subject", "detections/s", "processor, us each", "MiB"]
    rows = [
        [workload, subject, *_cells(results)]
        for workload, rounds in workloads.items()
        for subject, results in rounds.items()
        if results
    ]
    found["figures"] = Sheet("Each subject, one processor", columns, rows)
    return found


def charts(workloads: Mapping[str, Rounds]) -> Iterator[Chart]:
    """A plot of the rates and one of the processor time, a workload."""
    for workload, rounds in workloads.items():
        measured = {name: results for name, results in rounds.items() if results}
        for title, of, unit in (
            (f"{workload}: detections a second", rate, "/s"),
            (f"{workload}: processor time of a detection", cost, "us"),
        ):
            bars = [Spread(map(of, results)).bar(name) for name, results in measured.items()]
            yield Chart(title, unit, bars, lower=of is cost)


def _cells(results: list[Result]) -> list[str]:
    peak = max(each.get("peak_bytes", 0.0) for each in results) / 2**20
    return [str(Spread(map(rate, results))), str(Spread(map(cost, results))), f"{peak:,.0f}"]


def is_floor(name: str) -> bool:
    """Whether a subject sends nothing, so that there is no outcome to check."""
    return name == FLOOR
