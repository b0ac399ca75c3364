"""`python -m benchmarks.faults`: every fault under load, its outcome, and a table.

Exit status 1 if anything is missing, comes twice where it must not, or does not recover."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

from rich.console import Console

from benchmarks.installation import PARTITIONS, FlakyPartner, Installation, installation
from benchmarks.machine import MachineWatch
from benchmarks.report import Sheet, add_json, finish
from tests.servers.kafka.server import KafkaServer
from tests.servers.postgres import PostgresServer
from tests.servers.process import ServerProcess, started
from tests.servers.redis import RedisServer
from tests.servers.waiting import eventually

_SEED = 14
_ROLES = ("trigger", "recorder", "connector")


def main() -> int:
    """Parse the arguments, run, print the table."""
    arguments = _arguments()
    console, watch = Console(soft_wrap=True), MachineWatch()
    outcomes = asyncio.run(_run(arguments, console))
    sheet = Sheet(
        f"Faults at {arguments.rate:g} detections a second", [*_HEADS], [*map(_cells, outcomes)]
    )
    finish(console, arguments, watch, [sheet], outcomes)
    return int(any(outcome.wrong for outcome in outcomes))


def _arguments() -> argparse.Namespace:
    names = [fault.name for fault in faults()]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--rate", type=float, default=150.0, help="detections a second")
    parser.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names)
    )
    add_json(parser)
    return parser.parse_args()


async def _run(arguments: argparse.Namespace, console: Console) -> list[FaultOutcome]:
    outcomes: list[FaultOutcome] = []

    async def one(place: Installation, fault: Fault) -> None:
        console.print(f"{fault.name} ...")
        outcomes.append(await suffer(place, fault, arguments.rate))
        for wrong in outcomes[-1].wrong:
            console.print(f"  {wrong}")

    with (
        started(KafkaServer) as kafka,
        started(RedisServer) as redis,
        started(PostgresServer) as postgres,
    ):
        async with _crewed(kafka, redis, postgres) as place:
            for fault in faults():
                if fault.name in arguments.only:
                    await one(place, fault)
    return outcomes


@asynccontextmanager
async def _crewed(
    kafka: KafkaServer, redis: RedisServer, postgres: PostgresServer
) -> AsyncIterator[Installation]:
    """Start two processes of each role, and a stream of detections at rate 0."""
    partner = FlakyPartner(seed=_SEED)
    async with installation(kafka, redis, postgres, partner=partner, seed=_SEED) as place:
        for role in _ROLES:
            for name in ("a", "b"):
                place.start(f"{role} {name}", role)
        await place.until_ready()
        with place.stream.flowing():
            yield place


_DELAY = 0.15  # seconds each way: a request to a slow server takes twice as long

Check = Callable[[Installation], Awaitable[bool]]


def faults() -> list[Fault]:
    """The faults of an installation, in order."""
    return [
        Fault(
            "broker stopped",
            partial(_stopped, "kafka"),
            _fails("trigger a", "kafka"),
            is_clean=False,
        ),
        Fault("Redis stopped", partial(_stopped, "redis"), _fails("trigger a", "redis")),
        Fault("Redis emptied", _emptied, seconds=0.0, heals_itself=True),
        Fault("Redis slow", partial(_slow, "redis")),
        Fault("PostgreSQL stopped", partial(_stopped, "postgres"), _fails("recorder a", "sql")),
        Fault("PostgreSQL slow", partial(_slow, "sql")),
        Fault("the connector's network cut", _cut, _calls_fail),
        Fault("a trigger killed", _killed, _taken_over, heals_itself=True, is_clean=False),
        Fault(
            "a trigger frozen past its session",
            _frozen,
            _taken_over,
            seconds=12.0,
            heals_itself=True,
            is_clean=False,
        ),
    ]


def _fails(process: str, check: str) -> Check:
    """Whether /readyz fails and names the check."""

    async def fails(installation: Installation) -> bool:
        return (await installation.processes[process].checks()).get(check) is False

    return fails


async def _calls_fail(installation: Installation) -> bool:
    """The company's breaker is open: no call is made in vain any more."""
    samples = await installation.processes["connector a"].get("/metrics")
    return any(
        line.startswith("proximity_connector_breakers")
        and 'state="open"' in line
        and float(line.rpartition(" ")[2]) > 0
        for line in samples[1].splitlines()
    )


async def _taken_over(installation: Installation) -> bool:
    """The other trigger has all partitions."""
    lines = installation.processes["trigger a"].output.splitlines()
    given = [line for line in lines if '"partitions assigned"' in line]
    return bool(given) and len(json.loads(given[-1])["partitions"]) == PARTITIONS


@asynccontextmanager
async def _stopped(name: str, installation: Installation) -> AsyncIterator[None]:
    server = cast(ServerProcess, getattr(installation, name))
    await asyncio.to_thread(server.stop)
    try:
        yield
    finally:
        await asyncio.to_thread(server.start)


@asynccontextmanager
async def _emptied(installation: Installation) -> AsyncIterator[None]:
    await asyncio.to_thread(installation.redis.flush)
    yield


@asynccontextmanager
async def _slow(name: str, installation: Installation) -> AsyncIterator[None]:
    link = installation.links[name]
    link.delay = _DELAY
    try:
        yield
    finally:
        link.delay = 0.0


@asynccontextmanager
async def _cut(installation: Installation) -> AsyncIterator[None]:
    link = installation.links["partner"]
    await link.cut()
    try:
        yield
    finally:
        link.restore()


@asynccontextmanager
async def _killed(installation: Installation) -> AsyncIterator[None]:
    installation.processes.pop("trigger b").kill()
    yield
    installation.start("trigger b", "trigger")
    await installation.until_ready()


@asynccontextmanager
async def _frozen(installation: Installation) -> AsyncIterator[None]:
    trigger = installation.processes.pop("trigger b")
    trigger.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        trigger.send_signal(signal.SIGCONT)
        installation.processes["trigger b"] = trigger


_NOTICED, _RECOVERED, _DRAIN_SECONDS = 60.0, 120.0, 90.0
_FLOWING = 3.0  # seconds of load before a fault, and with it again behind the recovery


@dataclass(frozen=True)
class Fault:
    """`during` makes the fault and repairs it at its end. `is_noticed` is awaited meanwhile.

    With `heals_itself` nothing has to be repaired: recovery counts from the fault on. `is_clean`:
    no message may come twice.
    """

    name: str
    during: Callable[[Installation], AbstractAsyncContextManager[None]]
    is_noticed: Callable[[Installation], Awaitable[bool]] | None = None
    seconds: float = 8.0
    heals_itself: bool = False
    is_clean: bool = True


class FaultOutcome(NamedTuple):
    """The outcome of a fault. Seconds until it was noticed, of the fault itself, and until full
    recovery. `wrong` has the deviations from what is expected."""

    name: str
    noticed: float | None
    lasted: float
    recovered: float
    repeats: int
    given_up: int
    wrong: list[str]


async def suffer(installation: Installation, fault: Fault, rate: float) -> FaultOutcome:
    """Make the fault at `rate` detections a second, and count its effects."""
    stream, tally = installation.stream, installation.tally
    repeats, given_up = tally.repeats, tally.given_up
    stream.rate = rate
    await asyncio.sleep(_FLOWING)  # the load, not a wait for something to happen
    begin = repaired_at = time.time()
    noticed, recovered, wrong = None, 0.0, list[str]()
    try:
        await _until_well(installation, rate, since=0.0)
        begin = repaired_at = time.time()
        async with fault.during(installation):
            if fault.is_noticed is not None:
                noticing = partial(fault.is_noticed, installation)
                await eventually(noticing, deadline=_NOTICED, what="it is noticed")
                noticed = time.time() - begin
            if fault.heals_itself:
                await _until_well(installation, rate, since=begin)
                recovered = time.time() - begin
            await asyncio.sleep(max(0.0, fault.seconds - (time.time() - begin)))
        repaired_at = time.time()
        await _until_well(installation, rate, since=repaired_at)
        recovered = recovered or time.time() - repaired_at
    except AssertionError as error:
        wrong.append(str(error).partition("\n")[0])
    await asyncio.sleep(_FLOWING)
    wrong += await _all_is_there(installation)
    repeats, given_up = tally.repeats - repeats, tally.given_up - given_up
    if fault.is_clean and repeats:
        wrong.append(f"{repeats} messages came twice")
    return FaultOutcome(
        fault.name, noticed, repaired_at - begin, recovered, repeats, given_up, wrong
    )


async def _until_well(installation: Installation, rate: float, *, since: float) -> None:
    """Every process is ready, no role is more than a second behind, and a detection that was made
    `since` has led to its notification."""
    missing = ""

    async def is_well() -> bool:
        nonlocal missing
        lags = await installation.progress.lags()
        late = {role: lag for role, lag in lags.items() if lag is None or lag > rate}
        ready = [(name, await each.is_ready()) for name, each in installation.processes.items()]
        waiting = [name for name, is_ready in ready if not is_ready]
        seen = any(at - after >= since for at, after in list(installation.tally.latencies)[-50:])
        missing = f"behind {late}, not ready {waiting}, notifications {seen}"
        return not late and not waiting and seen

    try:
        await eventually(is_well, deadline=_RECOVERED)
    except AssertionError:
        raise AssertionError(f"no recovery within {_RECOVERED:.0f} s: {missing}") from None


async def _all_is_there(installation: Installation) -> list[str]:
    """Pause the load, so that the received messages can be compared with the published ones."""
    installation.stream.rate = 0.0
    await asyncio.to_thread(installation.stream.flush)
    try:
        await installation.until_drained(_DRAIN_SECONDS)
    except AssertionError as error:
        return [str(error).partition("\n")[0]]
    return await installation.final_faults(_DRAIN_SECONDS)


_HEADS = (
    "fault",
    "noticed after",
    "lasted",
    "well again after",
    "repeated",
    "calls given up",
    "outcome",
)


def _cells(outcome: FaultOutcome) -> list[str]:
    noticed = "" if outcome.noticed is None else f"{outcome.noticed:.1f} s"
    return [
        outcome.name,
        noticed,
        f"{outcome.lasted:.1f} s",
        f"{outcome.recovered:.1f} s",
        f"{outcome.repeats:,}",
        f"{outcome.given_up:,}",
        "; ".join(outcome.wrong) or "nothing missing",
    ]


if __name__ == "__main__":
    sys.exit(main())
