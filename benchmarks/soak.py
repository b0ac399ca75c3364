"""`python -m benchmarks.soak`: ten minutes, or hours, of everything at half of what it can do.

Exit status 1, with the reasons, if memory or lag grows, a message is missing, or `proximity verify`
finds a difference."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
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
    installation,
)
from engine.process.lifecycle import cancel
from tests.servers.kafka.server import KafkaServer
from tests.servers.postgres import PostgresServer
from tests.servers.process import started
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually

ROLES = ("trigger", "recorder", "connector", "api")


def main() -> int:
    """Parse the arguments, run, print what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long; 240: four hours")
    parser.add_argument("--rate", type=float, help="detections a second, instead of half")
    parser.add_argument("--restart-seconds", type=float, default=20.0, help="between two restarts")
    arguments = parser.parse_args()
    console = Console(soft_wrap=True, highlight=False)
    checks = asyncio.run(_run(arguments, console))
    for check in checks:
        console.print(f"{'ok ' if check.is_well else 'BAD'}  {check.name}: {check.found}")
    return int(not all(check.is_well for check in checks))


_SEED = 10
_WARM_UP, _BURST = 2_000, 15_000
_MOST_SAMPLES = 600
_DRAINED, _DRAIN_SECONDS = 180.0, 60.0


async def _run(arguments: argparse.Namespace, console: Console) -> list[Check]:
    """Run everything, from the first start to `proximity verify`."""
    partner = FlakyPartner(seed=_SEED, down=5.0)
    with (
        started(KafkaServer) as kafka,
        started(RedisServer) as redis,
        started(PostgresServer) as postgres,
    ):
        async with installation(
            kafka, redis, postgres, partner=partner, seed=_SEED, is_direct=True
        ) as place:
            for role in ROLES:
                for name in (f"{role} a", f"{role} b"):
                    place.start(name, role)
            await place.until_ready()
            rate = arguments.rate or 0.5 * await _capacity(place, console)
            seconds = arguments.minutes * 60
            console.print(f"{rate:,.0f} detections a second for {arguments.minutes:g} minutes")
            return await _soak(place, rate, seconds, Restarts(arguments.restart_seconds), console)


async def _capacity(place: Installation, console: Console) -> float:
    """Detections a second that go through every role: a burst, until all of it is done."""
    await asyncio.to_thread(place.stream.burst, _WARM_UP)
    await place.until_drained(_DRAINED)
    begin = time.monotonic()
    await asyncio.to_thread(place.stream.burst, _BURST)
    await place.until_drained(_DRAINED)
    capacity = _BURST / (time.monotonic() - begin)
    console.print(f"a burst goes through at {capacity:,.0f} detections a second")
    return capacity


async def _soak(
    place: Installation, rate: float, seconds: float, restarts: Restarts, console: Console
) -> list[Check]:
    editing = Editing()
    kept = {f"{role} a": place.processes[f"{role} a"].pid for role in ROLES}
    samples: list[SoakSample] = []
    end, place.stream.rate = time.time() + seconds, rate
    with place.stream.flowing():
        tasks = [asyncio.create_task(each.run(place)) for each in (editing, restarts)]
        try:
            while (left := end - time.time()) > 0:
                pause = min(left, max(2.0, seconds / _MOST_SAMPLES))
                done, _ = await asyncio.wait(tasks, timeout=pause, return_when="FIRST_COMPLETED")
                for task in done:
                    task.result()
                samples.append(await _sample(place, kept))
        finally:
            await cancel(tasks)
    checks = [*judge_samples(samples, rate)]
    checks += await _final_checks(place, kept, editing, restarts)
    tally = place.tally
    p99 = median([each.p99 for each in samples if each.p99] or [0])
    console.print(
        f"{place.stream.published:,} detections, "
        f"{tally.plain + tally.edited + tally.answered:,} notifications, "
        f"{tally.answered:,} of {tally.calls:,} calls answered, {restarts.done} restarts, "
        f"{len(editing.answered)} edits, {tally.repeats:,} messages repeated, "
        f"p99 {1000 * p99:,.0f} ms (median of samples)"
    )
    return checks


async def _final_checks(
    place: Installation, kept: Mapping[str, int], editing: Editing, restarts: Restarts
) -> list[Check]:
    """Check after the load that nothing is unfinished, missing, or different."""
    begin = time.monotonic()
    try:
        await place.until_ready()
        await place.until_drained(_DRAINED)
        late = ""
    except AssertionError as error:
        late = str(error)
    found = late or f"after {time.monotonic() - begin:.0f} s"
    checks = [Check("all is done at the end", found, not late)]
    faults = await place.final_faults(_DRAIN_SECONDS)
    found = f"{place.tally.plain:,} notifications, {place.tally.calls:,} calls, none missing"
    checks.append(Check("counts are exact", "; ".join(faults) or found, not faults))
    status, message = await place.verify()
    last = message.strip().splitlines()[-1:] or ["says nothing"]
    checks.append(Check("proximity verify", last[0], status == 0))
    alive = [name for name in kept if place.processes[name].returncode is None]
    checks.append(Check("never ended", ", ".join(alive), len(alive) == len(kept)))
    found = "; ".join(restarts.failed) or f"{restarts.done} restarts"
    checks.append(Check("restarts", found, not restarts.failed))
    found = "; ".join(editing.refused[:3]) or f"{len(editing.answered)} edits, none refused"
    checks.append(Check("the interface", found, not editing.refused))
    checks.append(editing.judged(place.tally.titles))
    return checks


_EDIT_SECONDS = 1.0
_EDIT_SEEN_SECONDS = 30.0
_ANSWER = 15.0
_READY = 120.0


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
            body = (await client.get(f"{_url(installation, 'api a')}{path}")).json()
            for number, name in zip(count(1), cycle(("api b", "api a")), strict=False):
                title = f"edit {number}"
                edited = body | {"title": title, "push": title, "cache": "none"}
                answer = await self._edit(installation, client, name, path, edited)
                if answer.is_success:
                    self.answered[title] = time.time()
                else:
                    self.refused.append(f"{title}: {answer.status_code} {answer.text[:200]}")
                await asyncio.sleep(_EDIT_SECONDS)

    async def _edit(
        self,
        place: Installation,
        client: httpx.AsyncClient,
        name: str,
        path: str,
        body: dict[str, object],
    ) -> httpx.Response:
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

    def judged(self, seen: Mapping[str, float]) -> Check:
        """From the interface's answer to the first notification with the edit. One that is
        followed by the next edit too soon need not be seen."""
        took = [seen[title] - at for title, at in self.answered.items() if title in seen]
        found = f"{len(took)} of {len(self.answered)} seen, the slowest after "
        found += f"{max(0.0, *took, 0.0):.1f} s"
        return Check("edits take effect", found, bool(took) and max(took) <= _EDIT_SEEN_SECONDS)


@dataclass
class Restarts:
    """One process after the other is stopped or killed, and started again. `failed` has those
    that did not stop well."""

    seconds: float
    done: int = 0
    failed: list[str] = field(default_factory=list)

    async def run(self, installation: Installation) -> None:
        """Restart processes until cancelled; a restart is never interrupted."""
        for number, role in enumerate(cycle(ROLES)):
            await asyncio.sleep(self.seconds)
            is_killed = number // len(ROLES) % 2 == 1
            await asyncio.shield(self._restart(installation, f"{role} b", is_killed=is_killed))

    async def _restart(self, installation: Installation, name: str, *, is_killed: bool) -> None:
        process = installation.processes[name]
        self.done += 1
        try:
            if not is_killed:
                await process.stop()
        except Exception as error:  # a status that is not 0, or too late: it is reported at the end
            self.failed.append(f"{name}: {str(error)[:500]}")
            is_killed = True
        if is_killed:
            process.kill()
        started = installation.start(name, name.partition(" ")[0])
        await eventually(started.is_ready, deadline=_READY, what=f"ready, see {started.log}")


def _url(installation: Installation, name: str) -> str:
    return f"http://127.0.0.1:{installation.processes[name].port + 1}"


class SoakSample(NamedTuple):
    """Lags in records by role (None if unknown), megabytes by process, latency in seconds."""

    lags: Mapping[str, int | None]
    memory: Mapping[str, float]
    p99: float | None


async def _sample(place: Installation, kept: Mapping[str, int]) -> SoakSample:
    latencies = place.tally.take_latencies()
    p99 = latencies[int(0.99 * len(latencies))] if latencies else None
    memory = {name: _memory(pid) for name, pid in kept.items()}
    return SoakSample(await place.progress.lags(), memory, p99)


def _memory(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


# Between the middle third and the last one of a run. What a process remembers (claims, beacons,
# devices) is full after the first third.
_MEMORY_SHARE, _MEMORY_MEGABYTES = 0.05, 6.0
# A role that keeps up is so little behind, whatever happened before. (The recorder reads what comes
# of detections as well: two records of each.)
_LAG_SECONDS = 2.0
# A process that is killed holds its partitions until its session has ended, and then others start.
_LONGEST_LAG_SECONDS = 60.0
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


def _lag(role: str, middle: Sequence[SoakSample], last: Sequence[SoakSample], rate: float) -> Check:
    before, after = (
        median([lag for each in part if (lag := each.lags[role]) is not None] or [0])
        for part in (middle, last)
    )
    found = f"{before:,.0f} records in the middle third, {after:,.0f} in the last"
    return Check(f"lag of {role}", found, after <= before + _LAG_SECONDS * rate)


if __name__ == "__main__":
    sys.exit(main())
