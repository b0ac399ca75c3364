"""All figures of a run as one HTML page: tables, and bars drawn as SVG. It loads nothing."""

from collections.abc import Iterator, Mapping
from html import escape

from benchmarks.figures import Bar, Chart, Findings, Sheet
from benchmarks.machine import sentence

_ROW, _BAR = 24, 14  # pixels
_LABELS, _BARS, _VALUES = 260, 420, 170
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem }
table { border-collapse: collapse; margin: 0.8rem 0 1.4rem }
th, td { padding: 0.25rem 0.7rem; border-bottom: 1px solid #8884; text-align: right }
th:first-child, td:first-child { text-align: left }
svg text { font: 13px system-ui, sans-serif; fill: currentColor }
svg .bar { fill: #4c78a8 } svg .own { fill: #e4572e } svg .whisker { stroke: currentColor }
.soft { color: #777 } .busy { border-left: 4px solid #e4572e; padding-left: 0.8rem }
@media (prefers-color-scheme: dark) { body { background: #16181d; color: #ddd } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def as_page(found: Mapping[str, Findings]) -> str:
    """The whole file."""
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Benchmarks</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
            "<h1>Benchmarks</h1>",
            *(line for name, findings in found.items() for line in _section(name, findings)),
            "</body>\n</html>\n",
        ]
    )


def _section(name: str, findings: Findings) -> Iterator[str]:
    yield f"<h2>{escape(name)}</h2>"
    style = "busy" if findings.machine["busy"] else "soft"
    yield f'<p class="{style}">{escape(sentence(findings.machine).replace("**", ""))}</p>'
    for sheet in findings.sheets.values():
        yield f"<h3>{escape(sheet.title)}</h3>"
        yield from _table(sheet)
    for note in findings.notes:
        yield f'<p class="soft">{escape(note)}</p>'
    for chart in findings.charts:
        if chart.bars:
            yield from _drawn(chart)


def _table(sheet: Sheet) -> Iterator[str]:
    yield "<table>"
    yield _cells("th", sheet.columns)
    for row in sheet.rows:
        yield _cells("td", row)
    yield "</table>"


def _cells(element: str, texts: list[str]) -> str:
    cells = "".join(f"<{element}>{escape(text)}</{element}>" for text in texts)
    return f"<tr>{cells}</tr>"


def _drawn(chart: Chart) -> Iterator[str]:
    most = max(bar.most for bar in chart.bars) or 1.0
    height = _ROW * len(chart.bars)
    better = "less is better" if chart.lower else "more is better"
    yield f"<h3>{escape(chart.title)} ({better})</h3>"
    width = _LABELS + _BARS + _VALUES
    yield f'<svg role="img" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
    ordered = sorted(chart.bars, key=lambda bar: bar.median, reverse=not chart.lower)
    for number, bar in enumerate(ordered):
        yield from _bar(bar, chart.unit, number * _ROW, most)
    yield "</svg>"


def _bar(bar: Bar, unit: str, top: int, most: float) -> Iterator[str]:
    middle = top + _ROW / 2
    scale = _BARS / most
    style = "own" if bar.label.startswith(("trigger", "product", "recorder", "role")) else "bar"
    yield f'<text x="{_LABELS - 8}" y="{middle + 4}" text-anchor="end">{escape(bar.label)}</text>'
    yield (
        f'<rect class="{style}" x="{_LABELS}" y="{middle - _BAR / 2}" '
        f'width="{bar.median * scale:.1f}" height="{_BAR}"/>'
    )
    ends = [_LABELS + each * scale for each in (bar.least, bar.most)]
    yield (
        f'<line class="whisker" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{middle}" y2="{middle}"/>'
    )
    form = ",.0f" if bar.median >= 100 else ",.2f"
    at = _LABELS + bar.most * scale + 6
    yield f'<text x="{at:.1f}" y="{middle + 4}">{bar.median:{form}} {escape(unit)}</text>'
