"""`python -m benchmarks.capacity`: the resources for a number of devices, by the figures of a run.

`make bench` first. Every line of the plan says from which measured figure it comes.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from benchmarks.figures import Findings, Sheet, Spread, add_json, as_options, finish
from benchmarks.lineup import ROOT, TRIGGER
from benchmarks.report import cost
from benchmarks.store import read_all

_FIGURES = ROOT / ".cache" / "bench" / "figures" / "figures.json"
_RECORD_BYTES = 260  # of a detection of the workloads with its key, before compression
_SCATTER_GRANTS = 2  # a detection
_MEGA, _GIGA = 1e6, 2**30


class Load(NamedTuple):
    """The load. `grants` are per detection, `claims` per device; `busy` is the share of a
    processor that may be used."""

    devices: int = 1_000_000
    rate: float = 1.0
    grants: float = 0.001
    claims: int = 1
    busy: float = 0.5

    @property
    def detections(self) -> float:
        """Rates per second, of all devices."""
        return self.devices * self.rate


def main() -> None:
    """Parse the arguments, print the plan."""
    usual = Load()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capacity", description=__doc__)
    parser.add_argument("figures", type=Path, nargs="?", default=_FIGURES)
    parser.add_argument("--devices", type=int, default=usual.devices)
    parser.add_argument("--rate", type=float, default=usual.rate, help="detections a second each")
    parser.add_argument("--grants", type=float, default=usual.grants, help="of a detection")
    parser.add_argument("--claims", type=int, default=usual.claims, help="held by a device")
    parser.add_argument("--busy", type=float, default=usual.busy, help="share of a processor")
    add_json(parser)
    arguments = parser.parse_args()
    load = Load(
        arguments.devices, arguments.rate, arguments.grants, arguments.claims, arguments.busy
    )
    found = planned(read_all(arguments.figures), load)
    if found is None:
        raise SystemExit(f"{arguments.figures}: has no figures of dwell and scatter; `make bench`")
    found.options = as_options(arguments)
    finish(Console(), found, arguments.json)


def planned(found: Mapping[str, Findings], load: Load) -> Findings | None:
    """The plan, if the figures that it needs are there."""
    if "dwell" not in found or "scatter" not in found:
        return None
    columns = ["what", "how much", "from"]
    rows = [*_trigger(found, load), *_recorder(found, load), *_memory(found, load), *_kafka(load)]
    title = (
        f"{load.devices:,} devices, {load.rate:g} detections a second each, "
        f"{load.grants:g} grants a detection; processors used to {load.busy:.0%}"
    )
    return Findings(
        name="capacity",
        command="python -m benchmarks.capacity",
        machine=found["dwell"].machine,
        options={},
        sheets={"plan": Sheet(title, columns, rows)},
    )


def _trigger(found: Mapping[str, Findings], load: Load) -> Iterator[list[str]]:
    dwell = _cost(found["dwell"].rounds["dwell"])
    scatter = _cost(found["scatter"].rounds["scatter"])
    grant = max(0.0, scatter - dwell) / _SCATTER_GRANTS
    each = dwell + load.grants * grant
    yield [
        "processors for the trigger",
        _processors(load.detections * each, load),
        f"{dwell:.1f} us a detection (dwell), {grant:.0f} us a grant (scatter)",
    ]


def _recorder(found: Mapping[str, Findings], load: Load) -> Iterator[list[str]]:
    if "recorder" not in found:
        return
    results = found["recorder"].rounds["dwell"]["recorder"]
    each = Spread(1e6 * one["seconds_processor"] / one["rows"] for one in results).median
    yield [
        "processors for the recorder, TRACE=all",
        _processors(load.detections * each, load),
        f"{each:.1f} us a detection (recorder, dwell); SQL's own come on top",
    ]


def _memory(found: Mapping[str, Findings], load: Load) -> Iterator[list[str]]:
    if "memory" not in found:
        return
    measured = found["memory"].rounds
    most = max(decisions for _, decisions, _ in measured)
    sizes = {claims: size for claims, decisions, size in measured if decisions == most}
    nearest = min(sizes, key=lambda claims: abs(claims - load.claims))
    size = sizes[nearest] * max(1.0, load.claims / nearest)
    yield [
        "memory of Redis",
        f"{load.devices * size / _GIGA:,.1f} GiB",
        f"{sizes[nearest]:,.0f} bytes a device, {nearest} claims, {most} decisions (memory)",
    ]


def _kafka(load: Load) -> Iterator[list[str]]:
    incoming = load.detections * _RECORD_BYTES / _MEGA
    yield [
        "detections into Kafka",
        f"{incoming:,.0f} MB/s before compression",
        f"{_RECORD_BYTES} bytes a record; read twice (trigger, recorder)",
    ]
    yield ["notifications", f"{load.detections * load.grants:,.0f}/s", "the grants"]


def _processors(microseconds_a_second: float, load: Load) -> str:
    return f"{microseconds_a_second / _MEGA / load.busy:,.1f}"


def _cost(rounds: Mapping[str, Any]) -> float:
    return Spread(map(cost, rounds[TRIGGER])).median


if __name__ == "__main__":
    main()
