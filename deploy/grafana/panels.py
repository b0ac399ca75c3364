"""Turns short descriptions of panels into Grafana's JSON. Independent of the product."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, Literal

Json = dict[str, Any]
Kind = Literal["timeseries", "stat", "table", "row"]

_COLUMNS = 24
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_SCHEMA = 39  # of Grafana 10.4, which later ones read
_HEIGHTS = {"timeseries": 8, "stat": 4, "table": 6, "row": 1}


@dataclass(frozen=True)
class Query:
    """PromQL, and the name of its lines, in which `{{label}}` stands for a label's value."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel. `unit` is one of Grafana's. A dashboard has 24 columns, `width` of them for it."""

    title: str
    queries: Sequence[Query]
    kind: Kind = "timeseries"
    unit: str = "short"
    width: int = 8
    meaning: str = ""
    stacked: bool = False
    limit: float | None = None  # shown red from here on


@dataclass(frozen=True)
class Heading:
    """Begins a new row of panels."""

    title: str


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A dashboard. `name` is the name of its file and its address in Grafana."""

    name: str
    title: str
    content: Sequence[Panel | Heading]

    def queries(self) -> Iterator[Query]:
        """Every query of the dashboard."""
        for each in self.content:
            if isinstance(each, Panel):
                yield from each.queries

    def json(self) -> Json:
        """The JSON that Grafana reads."""
        return {
            "uid": f"proximity-{self.name}",
            "title": self.title,
            "tags": ["proximity"],
            "schemaVersion": _SCHEMA,
            "editable": True,
            "refresh": "30s",
            "time": {"from": "now-3h", "to": "now"},
            "timezone": "browser",
            "links": [_others()],
            "templating": {"list": [_source_variable()]},
            "panels": list(_placed(self.content)),
        }


def _others() -> Json:
    return {
        "type": "dashboards",
        "title": "Proximity",
        "tags": ["proximity"],
        "asDropdown": True,
        "includeVars": True,
        "keepTime": True,
    }


def _source_variable() -> Json:
    return {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}


def _placed(content: Iterable[Panel | Heading]) -> Iterator[Json]:
    """Place panels from left to right; the next line begins below the highest panel."""
    left = top = height = 0
    for number, each in enumerate(content, start=1):
        kind: Kind = each.kind if isinstance(each, Panel) else "row"
        width = each.width if isinstance(each, Panel) else _COLUMNS
        if left + width > _COLUMNS:
            left, top, height = 0, top + height, 0
        place = {"x": left, "y": top, "w": width, "h": _HEIGHTS[kind]}
        body = _panel(each) if isinstance(each, Panel) else _heading(each)
        yield {"id": number, "type": kind, "gridPos": place, **body}
        left, height = left + width, max(height, _HEIGHTS[kind])


def _heading(heading: Heading) -> Json:
    return {"title": heading.title, "collapsed": False, "panels": []}


def _panel(panel: Panel) -> Json:
    return {
        "title": panel.title,
        "description": panel.meaning,
        "datasource": _SOURCE,
        "targets": [_target(*pair) for pair in zip(ascii_uppercase, panel.queries, strict=False)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel.kind),
    }


def _target(letter: str, query: Query) -> Json:
    return {
        "refId": letter,
        "datasource": _SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend or "__auto",
    }


def _defaults(panel: Panel) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    if panel.limit is not None:
        steps.append({"color": "red", "value": panel.limit})
    defaults: Json = {
        "unit": panel.unit,
        "min": 0,
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "fillOpacity": 30 if panel.stacked else 0,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel.stacked else "none"},
            "thresholdsStyle": {"mode": "off" if panel.limit is None else "line"},
        }
    return defaults


def _options(kind: Kind) -> Json:
    if kind == "timeseries":
        legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
        return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
    if kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value"}
    return {}
