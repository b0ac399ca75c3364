"""`python -m benchmarks.profile`: where the trigger spends its processor time.

The trigger runs over a workload as in `python -m benchmarks`, and is interrupted after each few
milliseconds of processor time (SIGPROF): the innermost frame that belongs to one of the places
below has the sample. C code counts where Python called it.
"""

import argparse
import asyncio
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import orjson
from rich.console import Console

from benchmarks.figures import Chart, Findings, Sheet, Spread, add_json, as_options, finish
from benchmarks.lineup import EVERYBODY, TRIGGER
from benchmarks.machine import MachineWatch
from benchmarks.report import Result, cost
from benchmarks.rounds import Rounds
from benchmarks.servers import servers
from benchmarks.workloads import workloads

# The first that is in the path of a frame's file, from the inside out.
PLACES = {
    "engine/kafka/decoding": "decode",
    "engine/kafka/detection": "decode",
    "engine/kafka/formats": "decode",
    "engine/kafka/messages": "decode",
    "engine/kafka/record_time": "decode",
    "engine/kafka/timestamps": "decode",
    "engine/trigger/decode_step": "refuse undecoded",
    "engine/trigger/publish_step": "publish",
    "engine/trigger/beacon_": "resolve",
    "engine/trigger/index_watch": "resolve",
    "rules/": "decide",
    "engine/trigger/partition": "decide",
    "engine/trigger/pipeline": "decide",
    "engine/trigger/claim": "claim",
    "engine/trigger/grants": "claim",
    "engine/redis/claim": "claim",
    "engine/trigger/compose": "compose",
    "engine/trigger/fragments": "compose",
    "engine/redis/device": "compose",
    "engine/trigger/counts": "count",
    "engine/process/metrics": "count",
    "engine/process/batch_histogram": "count",
    "engine/process/clock_skew": "count",
    "engine/trigger/decision": "note decisions",
    "engine/redis/decision_store": "note decisions",
    "engine/redis/tail_store": "note decisions",
    "engine/trigger/": "turns, lanes and batches",
    "engine/kafka/publisher": "publish",
    "engine/kafka/batch_sender": "publish",
    "engine/kafka/murmur2": "publish",
    "engine/kafka/transaction": "publish",
    "engine/kafka/commit": "commit",
    "engine/kafka/": "fetch and hand over",
    "aiokafka/producer": "publish: aiokafka",
    "aiokafka/": "fetch: aiokafka",
    "engine/redis/": "claim",
    "/redis/": "claim: redis-py",
    "asyncio/": "the event loop",
}
_OTHER = "other"


def main() -> None:
    """Parse the arguments, run, print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000, help="detections")
    parser.add_argument("--workload", choices=workloads(1000), default="dwell")
    parser.add_argument("--broker", default="apache", help="apache, embedded, or host:port")
    add_json(parser)
    arguments = parser.parse_args()
    console, watch = Console(), MachineWatch()
    result, samples = asyncio.run(_measure(arguments))
    shares = _shares(samples)
    findings = Findings(
        name="profile",
        command="python -m benchmarks.profile",
        machine=watch.described(),
        options=as_options(arguments),
        sheets={"table": _sheet(arguments.workload, result, shares)},
        charts=[_chart(arguments.workload, result, shares)],
        rounds={"result": result, "samples": samples},
    )
    finish(console, findings, arguments.json)


async def _measure(arguments: argparse.Namespace) -> tuple[Result, dict[str, int]]:
    workload = workloads(arguments.records)[arguments.workload]
    async with servers(arguments.broker) as running:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "samples.json"
            runs = Rounds(running, workload, arguments.records, Path(directory))
            await runs.prepare(alternatives=False)
            sampled = EVERYBODY[TRIGGER]._replace(environment={"BENCH_SAMPLES": str(file)})
            result = await runs.run(sampled)
            samples: dict[str, int] = orjson.loads(file.read_bytes())
            return result, samples


def place_of_frame(path: str) -> str:
    """The row of the table for a file; empty if the calling frame decides."""
    for start, place in PLACES.items():
        if start in path:
            return place
    return ""


def _shares(samples: Mapping[str, int]) -> dict[str, float]:
    """Shares by row, the largest first. A sample is a stack of files, the innermost first."""
    found: Counter[str] = Counter()
    for stack, count in samples.items():
        places = filter(None, map(place_of_frame, stack.split(";")))
        found[next(places, _OTHER)] += count
    whole = found.total() or 1
    return {place: count / whole for place, count in found.most_common()}


def _sheet(workload: str, result: Result, shares: Mapping[str, float]) -> Sheet:
    each = cost(result)
    rows = [[place, f"{share:.0%}", f"{share * each:.2f}"] for place, share in shares.items()]
    title = f"Where the {each:.1f} us of a detection go ({workload})"
    return Sheet(title, ["step", "share", "us a detection"], rows)


def _chart(workload: str, result: Result, shares: Mapping[str, float]) -> Chart:
    bars = [Spread([share * cost(result)]).bar(place) for place, share in shares.items()]
    return Chart(f"Where a detection's processor time goes ({workload})", "us", bars, lower=True)


if __name__ == "__main__":
    main()
