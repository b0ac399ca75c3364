"""The page of plots at the end of a run: one HTML file without external resources."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from benchmarks.soak.samples import SoakSample
from benchmarks.soak.verdict import Check
from engine.cli.replay.report.document import html_document, report_style, uplot_script, uplot_style

Series = Mapping[str, Sequence[float | None]]
_MILLISECONDS = 1000.0


def write_soak_page(
    title: str,
    figures: Iterable[tuple[str, str]],
    checks: Iterable[Check],
    samples: Sequence[SoakSample],
    marks: Iterable[tuple[float, str]],
) -> str:
    """The whole file. `marks` are restarts: seconds since the start, and the process."""
    plots = list(_plots(samples))
    data = {
        "x": [round(each.at, 1) for each in samples],
        "marks": [[round(at, 1), what] for at, what in marks],
        "plots": [
            {"id": f"plot-{number}", "series": [_series(*each) for each in series.items()]}
            for number, (_, series) in enumerate(plots)
        ],
    }
    return html_document(
        title,
        styles=[uplot_style(), report_style(), _asset("soak.css")],
        scripts=[uplot_script(), _asset("soak.js")],
        body=_body(title, figures, checks, [name for name, _ in plots]),
        data=data,
    )


def _plots(samples: Sequence[SoakSample]) -> Iterator[tuple[str, Series]]:
    if not samples:
        return

    def of(get: Callable[[SoakSample], Mapping[str, float | int | None]]) -> Series:
        return {name: [get(each)[name] for each in samples] for name in get(samples[0])}

    yield "Lag, in records", of(lambda each: each.lags)
    yield "Memory, in MB", of(lambda each: each.memory)
    yield (
        "Messages a second",
        {
            "detections": [each.published for each in samples],
            "notifications": [each.notified for each in samples],
        },
    )
    yield (
        "From a detection to its notification at a consumer, in milliseconds",
        {
            name: [_ms(each.latencies[place]) for each in samples]
            for place, name in enumerate(("p50", "p99"))
        },
    )
    yield "Processors in use", of(lambda each: each.processor)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * _MILLISECONDS


def _series(label: str, values: Sequence[float | None]) -> dict[str, Any]:
    return {"label": label, "values": [None if v is None else round(v, 2) for v in values]}


def _body(
    title: str,
    figures: Iterable[tuple[str, str]],
    checks: Iterable[Check],
    plots: Sequence[str],
) -> Iterator[str]:
    yield f"<h1>{escape(title)}</h1>"
    yield '<div class="tiles">'
    for figure, words in figures:
        yield f"<div><b>{escape(figure)}</b><span>{escape(words)}</span></div>"
    yield "</div>"
    yield "<h2>What must be so</h2>"
    yield '<table class="table"><thead><tr><th></th><th>Check</th><th>Found</th></tr></thead>'
    yield "<tbody>"
    for check in checks:
        mark = "ok" if check.is_well else "BAD"
        cells = (mark, check.name, check.found)
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"
    yield "</tbody></table>"
    yield '<p class="soft">A grey line is a process that was stopped or killed.</p>'
    for number, name in enumerate(plots):
        yield f'<h2>{escape(name)}</h2>\n<div class="plot" id="plot-{number}"></div>'


def _asset(name: str) -> str:
    return files("benchmarks.soak").joinpath("assets", name).read_text(encoding="utf-8")
