"""`python -m benchmarks.crash`: kills each subject (SIGKILL) when it has published 60% of its
notifications, and starts it again. Counts the notifications that are lost or published twice, and
measures the time until the restarted subject publishes the next one."""

import argparse
import asyncio
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from benchmarks.arrivals import Arrivals
from benchmarks.figures import Findings, Sheet, Spread, add_json, as_options, finish
from benchmarks.lineup import EVERYBODY, FLOOR, USUAL, Subject
from benchmarks.machine import MachineWatch
from benchmarks.rounds import Rounds, SubjectError
from benchmarks.servers import servers
from benchmarks.topics import Notified
from benchmarks.workloads import workloads

# The subject ends after this number of records, which the topic does not have: the kill ends it.
_NEVER = 1_000_000_000
_SHARE = 0.6
_START_SECONDS = 240.0
_RESUME_SECONDS = 180.0  # a dead member's partitions get another owner after its session timeout
_SETTLE_SECONDS = 0.5
_STOP_SECONDS = 20.0


class Aftermath(NamedTuple):
    """The notifications of a subject that was killed and restarted.

    `expected` is their number without a kill, and `lost` are missing. `other_id` were published
    again under another id, so that a consumer cannot recognise them as duplicates; `same_id` were
    published again under the same id. `resumed` is the time from the restart to the first new
    notification, in seconds.
    """

    expected: int
    lost: int
    other_id: int
    same_id: int
    resumed: float

    @property
    def summary(self) -> str:
        """The outcome on one line."""
        return (
            f"lost {self.lost:,} of {self.expected:,}, twice {self.other_id:,}, again "
            f"{self.same_id:,}, goes on after {self.resumed:.1f} s"
        )


def main() -> None:
    """Run the rounds of all chosen subjects and print the table."""
    arguments = _arguments()
    console, watch = Console(), MachineWatch()
    names = [name for name in EVERYBODY if name != FLOOR]
    chosen = names if "all" in arguments.subjects else arguments.subjects
    subjects = [EVERYBODY[name] for name in chosen if EVERYBODY[name].there]
    found, failures = asyncio.run(_measure(arguments, subjects, console))
    findings = Findings(
        name="crash",
        command="python -m benchmarks.crash",
        machine=watch.described(),
        options=as_options(arguments),
        sheets={"table": _sheet(found)},
        notes=failures,
        rounds={name: [each._asdict() for each in all_of] for name, all_of in found.items()},
    )
    finish(console, findings, arguments.json)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crash", description=__doc__)
    parser.add_argument(
        "--records",
        type=int,
        default=60_000,
        help="detections per round; each grants two campaigns. Below 40,000 one batch may hold all",
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--broker", default="apache", help="apache, or host:port")
    usual = [name for name in USUAL if name != FLOOR]
    parser.add_argument(
        "--subjects", nargs="+", choices=[*EVERYBODY, "all"], default=usual, metavar="NAME"
    )
    parser.add_argument(
        "--quiet",
        type=float,
        default=12.0,
        help="a run ends after this many seconds without a notification",
    )
    add_json(parser)
    return parser.parse_args()


async def _measure(
    arguments: argparse.Namespace, subjects: list[Subject], console: Console
) -> tuple[dict[str, list[Aftermath]], list[str]]:
    found: dict[str, list[Aftermath]] = {}
    failures: list[str] = []
    workload = workloads(arguments.records)["scatter"]
    async with servers(arguments.broker) as running:
        with tempfile.TemporaryDirectory() as directory:
            runs = Rounds(running, workload, arguments.records, Path(directory))
            await runs.prepare()
            expected = len(workload.notifications(arguments.records)) * workload.campaigns
            for number in range(arguments.rounds):
                for subject in subjects:
                    try:
                        crash = _Crash(runs, subject, expected)
                        result = await crash.run(arguments.quiet)
                    except SubjectError as error:
                        failures.append(str(error))
                        console.print(f"  {error}", highlight=False)
                        continue
                    found.setdefault(subject.name, []).append(result)
                    console.print(f"  round {number + 1}: {subject.name} {result.summary}")
    return found, failures


class _Crash:
    """One run: a subject is started, killed, and started again in the same consumer group."""

    def __init__(self, runs: Rounds, subject: Subject, expected: int) -> None:
        self._runs = runs
        self._subject = subject
        self._expected = expected

    async def run(self, quiet: float) -> Aftermath:
        """The notifications of the run, which ends `quiet` seconds after the last one.

        Raises SubjectError if the subject ends by itself or publishes too little in time.
        """
        group = await self._runs.begin(self._subject)
        return await asyncio.to_thread(self._run, group, quiet)

    def _run(self, group: str, quiet: float) -> Aftermath:
        begins = self._runs.measured.ends()
        with self._runs.measured.arrivals(begins) as arrivals:
            self._kill_the_first(group, arrivals)
            resumed = self._restart(group, arrivals, quiet)
        return aftermath(self._expected, self._runs.measured.notified(begins), resumed)

    def _kill_the_first(self, group: str, arrivals: Arrivals) -> None:
        first = self._runs.started(self._subject, _NEVER, group)
        enough = _SHARE * self._expected
        try:
            self._wait(
                lambda: arrivals.count() >= enough, first, _START_SECONDS, "published enough"
            )
        finally:
            first.kill()
            first.wait()

    def _restart(self, group: str, arrivals: Arrivals, quiet: float) -> float:
        """The seconds from the restart to the next notification; returns when all have come."""
        # The broker may still be writing notifications that the killed process had sent.
        before = _until_quiet(arrivals, _SETTLE_SECONDS)
        if before >= self._expected:
            raise SubjectError(
                f"{self._subject.name}, crash: it had published all notifications; raise --records"
            )
        restarted = time.monotonic()
        second = self._runs.started(self._subject, _NEVER, group)
        try:
            self._wait(lambda: arrivals.count() > before, second, _RESUME_SECONDS, "went on")
            resumed = time.monotonic() - restarted
            _until_quiet(arrivals, quiet)
        finally:
            _stop(second)
        return resumed

    def _wait(
        self, done: Callable[[], bool], process: subprocess.Popen[bytes], seconds: float, what: str
    ) -> None:
        give_up = time.monotonic() + seconds
        while not done():
            if time.monotonic() > give_up or process.poll() is not None:
                raise SubjectError(f"{self._subject.name}, crash: it never {what}")


def _until_quiet(arrivals: Arrivals, quiet: float) -> int:
    """Count until none has come for `quiet` seconds; return the count."""
    last, since = arrivals.count(), time.monotonic()
    while time.monotonic() - since < quiet:
        if (now := arrivals.count()) != last:
            last, since = now, time.monotonic()
    return last


def aftermath(expected: int, found: Iterable[Notified], resumed: float) -> Aftermath:
    """Count the lost and the duplicated among `found`, the notifications in the topic."""
    ids: dict[tuple[str, int, int], list[str]] = {}
    for each in found:
        ids.setdefault((each.udid, each.beacon, each.campaign), []).append(each.id)
    distinct = sum(len(set(every)) for every in ids.values())
    return Aftermath(
        expected=expected,
        lost=expected - len(ids),
        other_id=distinct - len(ids),
        same_id=sum(map(len, ids.values())) - distinct,
        resumed=resumed,
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _sheet(found: dict[str, list[Aftermath]]) -> Sheet:
    columns = ["subject", "of", "lost", "twice, another id", "again, same id", "goes on after, s"]
    rows = [
        [
            name,
            f"{aftermaths[0].expected:,}",
            *(
                str(Spread(getattr(each, field) for each in aftermaths))
                for field in ("lost", "other_id", "same_id", "resumed")
            ),
        ]
        for name, aftermaths in found.items()
    ]
    return Sheet("Killed at 60% and started again: notifications", columns, rows)


if __name__ == "__main__":
    main()
