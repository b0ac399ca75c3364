"""Calls as the connector role makes them, and a scheduler to make them with."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from ipaddress import IPv4Network
from typing import Any

import pytest

from connectors.breaker import BreakerPolicy, Breakers, BreakerStore
from connectors.client import CallLimits, ServiceCaller, client_context
from connectors.egress import EgressGuard, Resolve
from connectors.errors import CallError
from connectors.model import (
    Call,
    CallFault,
    CallResult,
    Endpoint,
    Failed,
    HttpMethod,
    ParameterPlace,
)
from connectors.request import build_request
from connectors.schedule import CallScheduler, Limits
from engine.process.lifecycle import cancel
from tests.connectors.calls import document
from tests.servers.waiting import eventually

LOOPBACK = (IPv4Network("127.0.0.0/8"),)
# For a call that is to miss its deadline; any other has time, however busy the machine is.
SHORT = CallLimits(connect=0.5, call=1.0)
AMPLE = CallLimits(connect=15.0, call=20.0)
ONCE = Limits(tries=1)
QUICK = Limits(first_wait=0.05)
_numbers = itertools.count(1)


def call_to(url: str, *, company: int = 1, fresh: float = 60.0, **endpoint: Any) -> Call:
    """A call about a detection that is fresh for so many seconds more."""
    number = next(_numbers)
    fields: dict[str, Any] = {"method": HttpMethod.POST, "place": ParameterPlace.HEADER, **endpoint}
    id_ = f"00000000-0000-5000-8000-{number:012d}"
    return Call(
        id=id_,
        company_id=company,
        document=document(id_, f"phone {number}"),
        fresh_until=time.time() + fresh,
        endpoint=Endpoint(url=url, **fields),
    )


def egress(look_up: Resolve | None = None, allow: Sequence[Any] = LOOPBACK) -> EgressGuard:
    return EgressGuard(allow_networks=allow, look_up=look_up)


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


class OwnBreakers:
    """A store that never answers, so that the process has breakers of its own."""

    async def exchange(self, *_arguments: Any, **_options: Any) -> Any:
        raise ConnectionError


class RunningScheduler:
    """A running scheduler; `results` by the call's id."""

    def __init__(self, scheduler: CallScheduler, breakers: Breakers) -> None:
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
    limits: Limits = QUICK,
    call_limits: CallLimits = AMPLE,
    ssl_context: Any = None,
    guard: EgressGuard | None = None,
    name: str = "one",
    is_temporary: Callable[[Exception], bool] = lambda error: isinstance(error, ConnectionError),
    fails: type[Exception] | None = None,
    can_start: Callable[[], bool] = lambda: True,
) -> AsyncIterator[RunningScheduler]:
    """A scheduler as the role has it, with breakers of its own unless a store is given.

    It must live to the end of the context, unless it `fails` as expected.
    """
    breakers = Breakers(
        store=store or OwnBreakers(),
        policy=policy or BreakerPolicy(),
        name=name,
        clock=time.time,
        is_temporary=is_temporary,
        on_store_error=lambda: None,
    )
    async with caller(guard, ssl_context, call_limits) as calling:
        scheduler = CallScheduler(
            caller=calling,
            breakers=breakers,
            limits=limits,
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


def faults(one: RunningScheduler) -> Counter[str]:
    return Counter(
        result.fault.value if isinstance(result, Failed) else type(result).__name__
        for result in one.results.values()
    )


async def until_all(one: RunningScheduler, count: int, deadline: float = 15.0) -> None:
    await eventually(lambda: len(one.results) >= count, deadline=deadline, what=f"{count} results")


async def call_once(one: ServiceCaller, url: str, company: int = 1) -> bytes:
    call = call_to(url, company=company)
    return (await one.send(company, build_request(call, agent="test", now=0.0))).body


async def fault_of(one: ServiceCaller, url: str) -> CallFault:
    with pytest.raises(CallError) as caught:
        await call_once(one, url)
    return caught.value.fault


async def result_of(one: ServiceCaller, url: str) -> CallFault | None:
    """The fault of a call, if it had one."""
    try:
        await call_once(one, url)
    except CallError as error:
        return error.fault
    return None
