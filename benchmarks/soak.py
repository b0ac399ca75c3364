"""`python -m benchmarks.soak`: ten minutes, or hours, of everything at half of what it can do.

Exit status 1, with the reasons, if memory or lag grows, a message is missing, or `proximity verify`
finds a difference."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from statistics import median
from typing import NamedTuple

import httpx
from rich.console import Console

from benchmarks.installation import (
    EMAIL,
    PASSWORD,
    FlakyPartner,
    Installation,
    campaign_edit,
    installation,
)
from benchmarks.installation import ROLES as LAGGING
from engine.process.lifecycle import cancel
from tests.servers.kafka.server import KafkaServer
from tests.servers.postgres import PostgresServer
from tests.servers.process import started
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually
from tests.system.rig import Command

ROLES = ("trigger", "recorder", "connector", "api")


def main() -> int:
    """Parse the arguments, run, print what was found."""
    arguments = _arguments()
    console = Console(soft_wrap=True, highlight=False)
    with (
        started(KafkaServer) as kafka,
        started(RedisServer) as redis,
        started(PostgresServer) as postgres,
    ):
        soak = Soak(
            seconds=arguments.minutes * 60,
            share=arguments.share,
            rate=arguments.rate,
            restart_seconds=arguments.restart_seconds,
            restarted=arguments.restart,
            report=console.print,
        )
        result = asyncio.run(soak.run(kafka, redis, postgres))
    for found, what in result.figures:
        console.print(f"{found} {what}")
    for check in result.checks:
        console.print(f"{'ok ' if check.is_well else 'BAD'}  {check.name}: {check.found}")
    return int(not all(check.is_well for check in result.checks))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long; 240: four hours")
    parser.add_argument(
        "--share", type=float, default=0.5, help="of what a burst shows that it can do"
    )
    parser.add_argument("--rate", type=float, help="detections a second, instead of a share")
    parser.add_argument("--restart-seconds", type=float, default=20.0, help="between two restarts")
    parser.add_argument(
        "--restart", nargs="+", choices=ROLES, default=ROLES, help="what is restarted in turn"
    )
    return parser.parse_args()


_SEED = 10
_WARM_UP, _BURST = 2_000, 15_000
_MOST_SAMPLES = 600
_DRAINED, _DRAIN_SECONDS = 180.0, 60.0


@dataclass
class SoakResult:
    """The result. `figures` are pairs of a figure and its label."""

    rate: float
    checks: list[Check] = field(default_factory=list)
    figures: list[tuple[str, str]] = field(default_factory=list)


class Soak:
    """A run at `rate` detections a second; without it at `share` of the capacity of a burst."""

    def __init__(
        self,
        *,
        seconds: float,
        share: float,
        rate: float | None,
        restart_seconds: float,
        restarted: Sequence[str],
        report: Callable[[str], None],
    ) -> None:
        self._seconds = seconds
        self._share = share
        self._rate = rate
        self._restart_seconds = restart_seconds
        self._restarted = restarted
        self._print = report

    async def run(
        self, kafka: KafkaServer, redis: RedisServer, postgres: PostgresServer
    ) -> SoakResult:
        """Run everything, from the first start to `proximity verify`."""
        partner = FlakyPartner(seed=_SEED, period=60.0, down=5.0)
        async with installation(
            kafka, redis, postgres, partner=partner, seed=_SEED, is_direct=True
        ) as place:
            for role in ROLES:
                for name in (f"{role} a", f"{role} b"):
                    place.start(name, role)
            await place.until_ready()
            rate = self._rate or self._share * await self._capacity(place)
            self._print(f"{rate:,.0f} detections a second for {self._seconds / 60:g} minutes")
            return await self._at(place, rate)

    async def _capacity(self, place: Installation) -> float:
        """Detections a second that go through every role: a burst, until all of it is done."""
        await asyncio.to_thread(place.stream.burst, _WARM_UP)
        await place.until_drained(_DRAINED)
        begin = time.monotonic()
        await asyncio.to_thread(place.stream.burst, _BURST)
        await place.until_drained(_DRAINED)
        capacity = _BURST / (time.monotonic() - begin)
        self._print(f"a burst goes through at {capacity:,.0f} detections a second")
        return capacity

    async def _at(self, place: Installation, rate: float) -> SoakResult:
        result = SoakResult(rate)
        editing, restarts = Editing(), Restarts(self._restart_seconds, self._restarted)
        kept = {f"{role} a": place.processes[f"{role} a"].process.pid for role in ROLES}
        sampler = SoakSampler(place, kept)
        begin, place.stream.rate = time.time(), rate
        latencies: list[float] = []
        with place.stream.flowing():
            happening = [
                asyncio.create_task(each.run(place), name=type(each).__name__)
                for each in (editing, restarts)
            ]
            try:
                await self._sample(sampler, begin, happening)
            finally:
                await cancel(happening)
        latencies = sorted(p99 for each in sampler.samples if (p99 := each.latencies[1]))
        result.checks = [*judge_samples(sampler.samples, rate)]
        result.checks += await self._final_checks(place, kept, editing, restarts)
        tally = place.tally
        result.figures = [
            (f"{rate:,.0f}/s", "detections"),
            (f"{place.stream.published:,}", "detections in all"),
            (f"{tally.plain + tally.edited + tally.answered:,}", "notifications"),
            (f"{tally.answered:,} of {tally.calls:,}", "calls answered"),
            (f"{len(restarts.done)}", "restarts"),
            (f"{len(editing.answered)}", "edits"),
            (f"{tally.repeats:,}", "messages repeated"),
            (f"{1000 * (quantile(latencies, 0.5) or 0):,.0f} ms", "p99, median of samples"),
        ]
        return result

    async def _sample(
        self, sampler: SoakSampler, begin: float, happening: list[asyncio.Task[None]]
    ) -> None:
        """Take samples until the time is over. Raises what ended one of the tasks."""
        pause = max(2.0, self._seconds / _MOST_SAMPLES)
        while (left := begin + self._seconds - time.time()) > 0:
            done, _ = await asyncio.wait(
                happening, timeout=min(left, pause), return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
            await sampler.sample()

    async def _final_checks(
        self, place: Installation, kept: Mapping[str, int], editing: Editing, restarts: Restarts
    ) -> list[Check]:
        """Check after the load that nothing is unfinished, missing, or different."""
        begin = time.monotonic()
        checks = []
        try:
            await place.until_ready()
            await place.until_drained(_DRAINED)
            found = f"after {time.monotonic() - begin:.0f} s"
            checks.append(Check("all is done at the end", found, is_well=True))
        except AssertionError as error:
            checks.append(Check("all is done at the end", str(error), is_well=False))
        faults = await place.final_faults(_DRAIN_SECONDS)
        found = f"{place.tally.plain:,} notifications, {place.tally.calls:,} calls, none missing"
        checks.append(Check("counts are exact", "; ".join(faults) or found, not faults))
        status, message = await place.verify()
        last = message.strip().splitlines()[-1:] or ["says nothing"]
        checks.append(Check("proximity verify", last[0], status == 0))
        alive = [name for name in kept if place.processes[name].process.poll() is None]
        checks.append(Check("never ended", ", ".join(alive), len(alive) == len(kept)))
        found = "; ".join(restarts.failed) or f"{len(restarts.done)} restarts"
        checks.append(Check("restarts", found, not restarts.failed))
        found = "; ".join(editing.refused[:3]) or f"{len(editing.answered)} edits, none refused"
        checks.append(Check("the interface", found, not editing.refused))
        effects = [
            max(0.0, place.tally.titles[title] - at)
            for title, at in editing.answered.items()
            if title in place.tally.titles
        ]
        checks.append(judge_edits(effects, len(editing.answered) - len(effects)))
        return checks


_EDIT_SECONDS = 1.0
_ANSWER = 15.0
_READY, _STOPPED = 120.0, 60.0


@dataclass
class Editing:
    """Edits of the edited campaign, one a second. `answered` has the times of success by
    title; `refused` the other answers."""

    answered: dict[str, float] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    async def run(self, installation: Installation) -> None:
        """Edit until cancelled, by any process of the interface that answers."""
        estate = installation.estate
        path = f"/v2/lieu/{estate.venue}/campaign/{estate.edited}"
        headers = await self._sign_in(installation)
        async with httpx.AsyncClient(timeout=_ANSWER, headers=headers) as client:
            for number, name in zip(count(1), cycle(("api b", "api a")), strict=False):
                title = f"edit {number}"
                answer = await self._edit(installation, client, name, path, title)
                if answer.is_success:
                    self.answered[title] = time.time()
                else:
                    self.refused.append(f"{title}: {answer.status_code} {answer.text[:200]}")
                await asyncio.sleep(_EDIT_SECONDS)

    async def _edit(
        self, place: Installation, client: httpx.AsyncClient, name: str, path: str, title: str
    ) -> httpx.Response:
        body = campaign_edit(title)
        while True:
            try:
                answer = await client.put(f"{_url(place, name)}{path}", json=body)
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                    return answer
            except httpx.TransportError:  # it is stopping, or dead
                pass
            name = "api a"
            await asyncio.sleep(0.1)

    async def _sign_in(self, installation: Installation) -> dict[str, str]:
        async with httpx.AsyncClient(timeout=_ANSWER) as client:
            body = {"email": EMAIL, "password": PASSWORD}
            answer = await client.post(f"{_url(installation, 'api a')}/v2/auth", json=body)
        token = answer.raise_for_status().json()["session"]["token"]
        return {"x-service-key": EMAIL, "x-service-token": token}


@dataclass
class Restarts:
    """One process after the other, of these roles, is stopped or killed, and started again.
    `done` has when, and what; `failed` those that did not stop well."""

    seconds: float
    roles: Sequence[str] = ROLES
    done: list[tuple[float, str]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    async def run(self, installation: Installation) -> None:
        """Restart processes until cancelled; a restart is never interrupted."""
        for number, role in enumerate(cycle(self.roles)):
            await asyncio.sleep(self.seconds)
            is_killed = number // len(self.roles) % 2 == 1
            await asyncio.shield(self._restart(installation, f"{role} b", is_killed=is_killed))

    async def _restart(self, installation: Installation, name: str, *, is_killed: bool) -> None:
        process = installation.processes[name]
        self.done.append((time.time(), f"{name} {'killed' if is_killed else 'stopped'}"))
        if is_killed:
            process.kill()
        else:
            await self._stop(name, process)
        started = installation.start(name, name.partition(" ")[0])
        await eventually(started.is_ready, deadline=_READY, what=f"ready, see {started.log}")

    async def _stop(self, name: str, process: Command) -> None:
        try:
            await process.stop(_STOPPED)
        except Exception as error:  # a status that is not 0, or too late: it is reported at the end
            self.failed.append(f"{name}: {str(error)[:500]}")
            process.kill()


def _url(installation: Installation, name: str) -> str:
    return f"http://127.0.0.1:{installation.processes[name].port + 1}"


_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_MEGABYTE = 1024 * 1024


class SoakSample(NamedTuple):
    """One sample: seconds since the start; lags in records by role (None if unknown);
    megabytes and processors by process; messages a second and seconds since the sample before."""

    at: float
    lags: Mapping[str, int | None]
    memory: Mapping[str, float]
    processor: Mapping[str, float]
    published: float
    notified: float
    latencies: tuple[float | None, float | None]  # p50 and p99


class SoakSampler:
    """Samples the processes of the installation that are named in `kept`."""

    def __init__(self, installation: Installation, kept: Mapping[str, int]) -> None:
        self._installation = installation
        self._kept = kept
        self._begin = self._last = time.time()
        self._used = {name: _seconds_used(pid) for name, pid in kept.items()}
        self._published = installation.stream.published
        self._notified = installation.tally.plain
        self.samples: list[SoakSample] = []

    async def sample(self) -> None:
        """Take one sample."""
        place, last = self._installation, self._last
        lags = await place.progress.lags()
        now = self._last = time.time()
        used = {name: _seconds_used(pid) for name, pid in self._kept.items()}
        published, notified = place.stream.published, place.tally.plain
        seconds = now - last
        latencies = place.tally.take_latencies()
        self.samples.append(
            SoakSample(
                at=now - self._begin,
                lags={role: lags[role] for role in LAGGING},
                memory={name: _memory(pid) for name, pid in self._kept.items()},
                processor={name: (used[name] - self._used[name]) / seconds for name in used},
                published=(published - self._published) / seconds,
                notified=(notified - self._notified) / seconds,
                latencies=(quantile(latencies, 0.5), quantile(latencies, 0.99)),
            )
        )
        self._used, self._published, self._notified = used, published, notified


def quantile(ordered: list[float], share: float) -> float | None:
    """The quantile of sorted values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def _memory(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * _PAGE / _MEGABYTE


def _seconds_used(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


# Between the middle third and the last one of a run. What a process remembers (claims, beacons,
# devices) is full after the first third.
_MEMORY_SHARE, _MEMORY_MEGABYTES = 0.05, 6.0
# A role that keeps up is so little behind, whatever happened before. (The recorder reads what comes
# of detections as well: two records of each.)
_LAG_SECONDS = 2.0
# A process that is killed holds its partitions until its session has ended, and then others start.
_LONGEST_LAG_SECONDS = 60.0
_EDIT_SEEN_SECONDS = 30.0
_FEWEST = 9


class Check(NamedTuple):
    """A condition, and the measured value."""

    name: str
    found: str
    is_well: bool


def judge_samples(samples: Sequence[SoakSample], rate: float) -> Iterator[Check]:
    """Check memory and lag."""
    if len(samples) < _FEWEST:
        yield Check("samples", f"{len(samples)}: too few to judge", is_well=False)
        return
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]
    for name in samples[0].memory:
        before = median(each.memory[name] for each in middle)
        after = median(each.memory[name] for each in last)
        bound = before * (1 + _MEMORY_SHARE) + _MEMORY_MEGABYTES
        found = f"{before:.0f} MB in the middle third, {after:.0f} MB in the last"
        yield Check(f"memory of {name}", found, after <= bound)
    for role in samples[0].lags:
        yield _lag(role, middle, last, rate)
        known = [lag for each in samples if (lag := each.lags[role]) is not None]
        most = max(known, default=0)
        found = f"{most:,} records, {most / rate:.0f} s of the load"
        yield Check(f"largest lag of {role}", found, most <= _LONGEST_LAG_SECONDS * rate)


def judge_edits(effects: Sequence[float], unseen: int) -> Check:
    """From the interface's answer to the first notification with the edit, in seconds. One that is
    followed by the next edit too soon need not be seen."""
    if not effects:
        return Check("edits", "none has taken effect", is_well=False)
    slowest = max(effects)
    found = f"{len(effects)} seen, the slowest after {slowest:.1f} s; {unseen} never alone"
    return Check(
        "edits take effect", found, slowest <= _EDIT_SEEN_SECONDS and unseen < len(effects)
    )


def _lag(role: str, middle: Sequence[SoakSample], last: Sequence[SoakSample], rate: float) -> Check:
    before, after = (
        median([lag for each in part if (lag := each.lags[role]) is not None] or [0])
        for part in (middle, last)
    )
    found = f"{before:,.0f} records in the middle third, {after:,.0f} in the last"
    return Check(f"lag of {role}", found, after <= before + _LAG_SECONDS * rate)


if __name__ == "__main__":
    sys.exit(main())
