"""One fault: how it is made and repaired, how it is noticed, and what it may cost."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple

from benchmarks.installation.running import Installation
from tests.servers.waiting import eventually

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
    wrong: list[str] = []
    stream.rate = rate
    await asyncio.sleep(_FLOWING)  # the load, not a wait for something to happen
    await _until_well(installation, rate, since=0.0)
    begin, noticed = time.time(), None
    recovered = 0.0
    try:
        async with fault.during(installation):
            if fault.is_noticed is not None:
                await _until(lambda: _is_noticed(fault, installation), _NOTICED, "it is noticed")
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
        repaired_at = time.time()
    await asyncio.sleep(_FLOWING)
    wrong += await _all_is_there(installation)
    repeats, given_up = tally.repeats - repeats, tally.given_up - given_up
    if fault.is_clean and repeats:
        wrong.append(f"{repeats} messages came twice")
    return FaultOutcome(
        fault.name, noticed, repaired_at - begin, recovered, repeats, given_up, wrong
    )


async def _is_noticed(fault: Fault, installation: Installation) -> bool:
    return fault.is_noticed is not None and await fault.is_noticed(installation)


async def _until_well(installation: Installation, rate: float, *, since: float) -> None:
    """Every process is ready, no role is more than a second behind, and a detection that was made
    `since` has led to its notification."""

    async def is_well() -> bool:
        lags = (await installation.progress.lags()).values()
        if any(lag is None or lag > rate for lag in lags):
            return False
        if not any(at - after >= since for at, after in list(installation.tally.latencies)[-50:]):
            return False
        return all([await each.is_ready() for each in installation.processes.values()])

    await _until(is_well, _RECOVERED, "full recovery")


async def _until(condition: Callable[[], Awaitable[bool]], deadline: float, what: str) -> None:
    await eventually(condition, deadline=deadline, what=what)


async def _all_is_there(installation: Installation) -> list[str]:
    """Pause the load, so that the received messages can be compared with the published ones."""
    installation.stream.rate = 0.0
    await asyncio.to_thread(installation.stream.flush)
    try:
        await installation.until_drained(_DRAIN_SECONDS)
    except AssertionError as error:
        return [str(error).partition("\n")[0]]
    return await installation.final_faults(_DRAIN_SECONDS)
