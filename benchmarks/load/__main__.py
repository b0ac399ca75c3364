"""`python -m benchmarks.load`: publishes detections at a fixed rate (open loop), and measures the
time until their notifications arrive."""

import argparse
import sys
from pathlib import Path

from confluent_kafka import KafkaException
from rich.console import Console

from benchmarks.figures import Findings, Sheet, add_json, as_options, finish
from benchmarks.load.generator import OpenLoop
from benchmarks.load.latency import PERCENTILES
from benchmarks.load.traffic import Traffic, numbered, of_catalog
from benchmarks.machine import MachineWatch

_LATE_MS = 5.0


def main() -> None:
    """Parse the arguments, send, print the results."""
    arguments = _arguments()
    console, watch = Console(), MachineWatch()
    traffic = _traffic(arguments)
    try:
        loop = OpenLoop(
            kafka={"bootstrap.servers": arguments.kafka, **dict(arguments.property)},
            detections=f"{arguments.topic_prefix}detections",
            notifications=f"{arguments.topic_prefix}notifications",
        )
        took = loop.run(traffic, settle=arguments.settle)
    except KafkaException as error:
        sys.exit(f"{arguments.kafka}: {error}")
    if arguments.histogram is not None:
        loop.latencies.write(arguments.histogram)
    options = as_options(arguments)
    options["property"] = ", ".join(name for name, _ in arguments.property)  # values are secrets
    findings = Findings(
        name="load",
        command="python -m benchmarks.load",
        machine=watch.described(),
        options=options,
        sheets={"latency": latency_sheet(loop), "counts": _counts(loop, took)},
        notes=list(_notes(loop)),
        rounds={"latency": loop.latencies.as_json(), "late": loop.late.as_json()},
    )
    finish(console, findings, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--kafka", default="localhost:9092", help="bootstrap servers")
    parser.add_argument(
        "-X",
        "--property",
        action="append",
        default=[],
        type=_property,
        metavar="NAME=VALUE",
        help="of librdkafka, such as security.protocol=SASL_SSL",
    )
    parser.add_argument("--topic-prefix", default="proximity.")
    parser.add_argument("--rate", type=float, default=1000.0, help="detections a second")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--pattern", choices=["dwell", "sweep", "roam", "herd"], default="dwell", help="see README"
    )
    parser.add_argument("--devices", type=int, default=10_000)
    beacons = parser.add_mutually_exclusive_group()
    beacons.add_argument("--catalog", type=Path, help="a file of `proximity catalog load`")
    beacons.add_argument("--beacons", type=int, default=1000, help="of a benchmark's own catalog")
    parser.add_argument("--zipf", type=float, default=0.0, help="exponent; 0: uniform")
    parser.add_argument("--poisson", action="store_true", help="arrivals at random, not evenly")
    parser.add_argument("--unknown", type=float, default=0.0, help="share of unknown beacons")
    parser.add_argument("--malformed", type=float, default=0.0, help="share cut off in the middle")
    parser.add_argument(
        "--settle", type=float, default=10.0, help="seconds without a notification that end it"
    )
    parser.add_argument("--histogram", type=Path, help="write the percentile distribution")
    add_json(parser)
    return parser.parse_args()


def _property(written: str) -> tuple[str, str]:
    name, found, value = written.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"{written!r} is not NAME=VALUE")
    return name, value


def _traffic(arguments: argparse.Namespace) -> Traffic:
    catalog: Path | None = arguments.catalog
    beacons = of_catalog(catalog) if catalog is not None else numbered(arguments.beacons)
    if not beacons:
        sys.exit(f"{catalog}: no beacons")
    return Traffic(
        rate=arguments.rate,
        seconds=arguments.seconds,
        beacons=beacons,
        pattern=arguments.pattern,
        devices=arguments.devices,
        zipf=arguments.zipf,
        poisson=arguments.poisson,
        unknown=arguments.unknown,
        malformed=arguments.malformed,
    )


def latency_sheet(loop: OpenLoop) -> Sheet:
    """Percentiles, from the scheduled moment."""
    columns = [*(f"p{each:g}, ms" for each in PERCENTILES), "most, ms", "notifications"]
    row = [f"{loop.latencies.milliseconds(each):,.1f}" for each in (*PERCENTILES, 100.0)]
    title = "From the moment a detection was due until its notification was seen"
    return Sheet(title, columns, [[*row, f"{loop.latencies.count:,}"]])


def _counts(loop: OpenLoop, took: float) -> Sheet:
    counts = {
        "detections sent": loop.sent,
        "of them refused by the full queue": loop.refused,
        "not delivered": loop.failed,
        "devices that met a known beacon": loop.meetings,
        "meetings without a notification": loop.unanswered,
        "notifications again, same id": loop.repeats,
        "notifications of others": loop.foreign,
    }
    rows = [[name, f"{count:,}"] for name, count in counts.items()]
    rows.append(["detections a second, reached", f"{loop.sent / max(took, 0.001):,.0f}"])
    late = f"{loop.late.milliseconds(99.0):,.1f} ms (most {loop.late.milliseconds(100.0):,.1f})"
    return Sheet("What was sent", ["", ""], [*rows, ["the generator late, p99", late]])


def _notes(loop: OpenLoop) -> list[str]:
    if loop.late.milliseconds(99.0) <= _LATE_MS:
        return []
    return [
        "The generator itself was late: the latencies are those of users of a system whose load "
        "comes from one processor. Run it on a machine of its own, or several of them."
    ]


if __name__ == "__main__":
    main()
