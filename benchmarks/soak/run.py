"""One long run: what the installation can do, then a share of it for the given time."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.installation.running import Installation, installation
from benchmarks.installation.service import FlakyPartner
from benchmarks.soak.disturbances import ROLES, Editing, Restarts
from benchmarks.soak.samples import SoakSample, SoakSampler, quantile
from benchmarks.soak.verdict import Check, judge_edits, judge_samples
from engine.process.cancelling import cancel
from tests.servers.kafka.server import KafkaServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer

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
    samples: list[SoakSample] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)


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
        result.samples = sampler.samples
        latencies = sorted(p99 for each in sampler.samples if (p99 := each.latencies[1]))
        result.checks = [*judge_samples(sampler.samples, rate)]
        result.checks += await self._final_checks(place, kept, editing, restarts)
        result.marks = [(at - begin, what) for at, what in restarts.done]
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
        self, sampler: SoakSampler, begin: float, happening: list["asyncio.Task[None]"]
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
