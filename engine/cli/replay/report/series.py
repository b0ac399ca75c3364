"""The data of the plots: notifications and decisions by hour of local time, or by day."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from catalog.plain_text import for_terminal
from engine.cli.replay.outcome import HourRow, Outcome
from rules.model import Reason

_HOUR = 3600
_DAY = 86_400
_MOST_HOURS = 14 * 24
_MOST_SERIES = 8  # as many as there are colours
_LONGEST = 48
_OTHERS = "all others"

Counts = Mapping[str, Mapping[int, int]]


def plots(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The data of all plots; empty plots are left out."""
    rows = [row for outcome in outcomes for row in outcome.rows]
    walls = sorted({row.hour.wall for row in rows})
    unit = _HOUR if not walls or walls[-1] - walls[0] < _MOST_HOURS * _HOUR else _DAY
    xs = sorted({wall - wall % unit for wall in walls})
    drawn = [_sent(outcomes, unit, xs)]
    reasons = list(_by_reason(rows, unit))  # of all catalogs: a reason has one colour
    drawn += [
        _plot(f"reasons-{number}", _by_reason(outcome.rows, unit, reasons), xs, colours=reasons)
        for number, outcome in enumerate(outcomes)
    ]
    return {"unit": unit, "x": xs, "plots": [plot for plot in drawn if plot["series"]]}


def _sent(outcomes: Sequence[Outcome], unit: int, xs: Sequence[int]) -> dict[str, Any]:
    """The notifications by campaign or, in a comparison, by catalog."""
    if len(outcomes) == 1:
        return _plot("sent", _by_campaign(outcomes[0].rows, unit), xs)
    counts = {outcome.name: _total(outcome.rows, unit) for outcome in outcomes}
    both = counts if any(counts.values()) else {}
    return _plot("sent", both, xs, stacked=False)


def _plot(
    id_: str,
    counts: Counts,
    xs: Sequence[int],
    *,
    stacked: bool = True,
    colours: Sequence[str] | None = None,
) -> dict[str, Any]:
    """`colours` has the labels in the order of the colours; without it each has its own."""
    order = list(counts if colours is None else colours)
    series = [
        {
            "label": _short(for_terminal(label)),
            "colour": order.index(label),
            "values": [by_time.get(x, 0) for x in xs],
        }
        for label, by_time in counts.items()
    ]
    return {"id": id_, "stacked": stacked, "series": series}


def _short(label: str) -> str:
    """The label, shortened for a legend; the tables have the whole name."""
    return label if len(label) <= _LONGEST else f"{label[: _LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"


def _total(rows: Sequence[HourRow], unit: int) -> Counter[int]:
    counts: Counter[int] = Counter()
    for row in rows:
        if row.reason is Reason.GRANTED:
            counts[row.hour.wall - row.hour.wall % unit] += row.detections
    return counts


def _by_campaign(rows: Sequence[HourRow], unit: int) -> Counts:
    counts: defaultdict[tuple[object, str], Counter[int]] = defaultdict(Counter)
    for row in rows:
        if row.reason is Reason.GRANTED and row.campaign is not None:
            key = (row.campaign.key, row.campaign.name)
            counts[key][row.hour.wall - row.hour.wall % unit] += row.detections
    ordered = sorted(counts.items(), key=lambda item: -item[1].total())
    names = [name for (_, name), _ in ordered]
    shown: dict[str, Counter[int]] = {}
    few = len(ordered) <= _MOST_SERIES
    for number, (name, (_, by_time)) in enumerate(zip(names, ordered, strict=True)):
        label = _numbered(name, names[:number]) if few or number < _MOST_SERIES - 1 else _OTHERS
        shown[label] = shown.get(label, Counter()) + by_time
    return shown


def _numbered(name: str, before: Sequence[str]) -> str:
    """Distinct labels, because names need not be unique but series must be."""
    return name if name not in before else f"{name} ({before.count(name) + 1})"


def _by_reason(rows: Sequence[HourRow], unit: int, shown: Sequence[str] | None = None) -> Counts:
    """The most frequent reasons, or those in `shown`, and the sum of the others."""
    counts: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for row in rows:
        counts[row.reason.value][row.hour.wall - row.hour.wall % unit] += row.detections
    if shown is None:
        shown = sorted(counts, key=lambda reason: -counts[reason].total())[: _MOST_SERIES - 1]
    others = [by_time for reason, by_time in counts.items() if reason not in shown]
    listed = {reason: counts[reason] for reason in shown if reason in counts}
    return listed | ({_OTHERS: sum(others, Counter[int]())} if others else {})
