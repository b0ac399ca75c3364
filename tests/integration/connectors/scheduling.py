"""Calls as the connector role makes them, and workers to make them with."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Network
from typing import Any

from connectors.breaker import BreakerPolicy, BreakerStore, LocalBreakers
from connectors.breaker_client import BreakerClient
from connectors.call import CallLimits, ServiceCaller, client_context
from connectors.egress import EgressGuard, Resolve
from connectors.model import (
    Call,
    CallBeacon,
    CallDevice,
    CallResult,
    Endpoint,
    Failed,
    HttpMethod,
    NamedReference,
    ParameterPlace,
)
from connectors.resolver import CachingResolver
from connectors.scheduled_call import RetryPolicy
from connectors.scheduler import CallScheduler, SchedulerLimits
from engine.process.cancelling import cancel
from tests.servers.waiting import eventually

LOOPBACK = (IPv4Network("127.0.0.0/8"),)
# For a call that is to miss its deadline; any other has time, however busy the machine is.
SHORT = CallLimits(connect=0.5, call=1.0)
AMPLE = CallLimits(connect=15.0, call=20.0)
_numbers = itertools.count(1)


def call_to(url: str, *, company: int = 1, fresh: float = 60.0, **endpoint: Any) -> Call:
    """A call about a detection that is fresh for so many seconds more."""
    number = next(_numbers)
    fields: dict[str, Any] = {"method": HttpMethod.POST, "place": ParameterPlace.HEADER, **endpoint}
    return Call(
        id=f"00000000-0000-5000-8000-{number:012d}",
        company_id=company,
        campaign=NamedReference(7, "Café"),
        venue=NamedReference(8, "Hall"),
        beacon=CallBeacon(id=9, name="door", uuid="f7826da6", major=1, minor=2),
        proximity="near",
        device=CallDevice(udid=f"phone {number}", test=False),
        detected_at="2026-11-20T10:00:00+0000",
        fresh_until=time.time() + fresh,
        endpoint=Endpoint(url=url, **fields),
    )


def egress(resolve: Resolve | None = None, allow: Sequence[Any] = LOOPBACK) -> EgressGuard:
    return EgressGuard(allow_networks=allow, resolve=resolve or CachingResolver())


@asynccontextmanager
async def caller(
    guard: EgressGuard | None = None, ssl_context: Any = None, limits: CallLimits = AMPLE
) -> AsyncIterator[ServiceCaller]:
    """A caller that is closed at the end."""
    context = ssl_context or client_context()
    one = ServiceCaller(egress=guard or egress(), ssl_context=context, limits=limits)
    try:
        yield one
    finally:
        await one.close()


class RunningScheduler:
    """A running scheduler; `results` by the call's id."""

    def __init__(self, scheduler: CallScheduler, breakers: BreakerClient) -> None:
        self.running = asyncio.create_task(scheduler.run())
        self.scheduler = scheduler
        self.breakers = breakers
        self.results: dict[str, CallResult] = {}
        self.times: dict[str, float] = {}

    def submit(self, call: Call) -> None:
        def on_result(result: CallResult) -> None:
            assert call.id not in self.results, "a second result"
            self.results[call.id] = result
            self.times[call.id] = time.time()

        self.scheduler.submit(call, on_result)


@asynccontextmanager
async def scheduling(
    *,
    store: BreakerStore | None = None,
    policy: BreakerPolicy | None = None,
    limits: SchedulerLimits | None = None,
    retries: RetryPolicy | None = None,
    call_limits: CallLimits = AMPLE,
    ssl_context: Any = None,
    guard: EgressGuard | None = None,
    name: str = "one",
    is_temporary: Callable[[Exception], bool] = lambda _error: False,
    fails: type[Exception] | None = None,
    can_start: Callable[[], bool] = lambda: True,
) -> AsyncIterator[RunningScheduler]:
    """A scheduler as the role has it, with breakers of its own unless a store is given.

    It must live to the end of the context, unless it `fails` as expected.
    """
    policy = policy or BreakerPolicy()
    breakers = BreakerClient(
        store=store or LocalBreakers(policy),
        local=LocalBreakers(policy),
        name=name,
        clock=time.time,
        is_temporary=is_temporary,
        on_store_error=lambda: None,
    )
    async with caller(guard, ssl_context, call_limits) as calling:
        scheduler = CallScheduler(
            caller=calling,
            breakers=breakers,
            retries=retries or RetryPolicy(first=0.05),
            limits=limits or SchedulerLimits(),
            agent="proximity-engine/test",
            can_start=can_start,
        )
        one = RunningScheduler(scheduler, breakers)
        try:
            yield one
            if fails is None:
                assert not one.running.done(), one.running
            else:
                assert isinstance(one.running.exception(), fails)
        finally:
            await cancel([one.running])


__all__ = [
    "AMPLE",
    "LOOPBACK",
    "SHORT",
    "RunningScheduler",
    "call_to",
    "caller",
    "egress",
    "scheduling",
]


def faults(one: RunningScheduler) -> Counter[str]:
    return Counter(
        result.fault.value if isinstance(result, Failed) else type(result).__name__
        for result in one.results.values()
    )


async def until_all(one: RunningScheduler, count: int, deadline: float = 15.0) -> None:
    await eventually(lambda: len(one.results) >= count, deadline=deadline, what=f"{count} results")
