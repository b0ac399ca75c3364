"""How many calls start before other tasks of the event loop have their turn."""

import asyncio
from collections import Counter

from connectors.breaker import BreakerPolicy, LocalBreakers
from connectors.breaker_client import BreakerClient
from connectors.call import Reply
from connectors.errors import CallError
from connectors.model import CallFault, CallResult
from connectors.request import Request
from connectors.scheduled_call import RetryPolicy
from connectors.scheduler import CallScheduler, SchedulerLimits
from engine.process.cancelling import cancel
from tests.integration.connectors.scheduling import call_to

CALLS = 200
UNBROKEN = BreakerPolicy(window=10_000, failures=10_000, pause=1.0, lease=1.0)


class FailingAtOnce:
    """In the place of the Caller: every call ends in the step in which it began."""

    def __init__(self) -> None:
        self.passes = 0
        self.started: Counter[tuple[int, int]] = Counter()  # by pass and company
        self._loop = asyncio.get_running_loop()
        self._count_passes()

    async def send(self, company_id: int, _request: Request) -> Reply:
        self.started[self.passes, company_id] += 1
        raise CallError(CallFault.REPLY_TOO_LARGE, "a reply of more than enough")

    async def close_expired(self) -> None:
        pass

    def _count_passes(self) -> None:
        self.passes += 1
        self._loop.call_soon(self._count_passes)


async def test_one_call_of_a_company_begins_in_a_pass_of_the_loop() -> None:
    """Calls that fail at once began 16 others in each pass, and everybody else's step waited."""
    local = LocalBreakers(UNBROKEN)
    caller = FailingAtOnce()
    scheduler = CallScheduler(
        caller=caller,  # type: ignore[arg-type]
        breakers=BreakerClient(
            store=LocalBreakers(UNBROKEN),
            local=local,
            name="one",
            clock=asyncio.get_running_loop().time,
            is_temporary=lambda _error: False,
            on_store_error=lambda: None,
        ),
        retries=RetryPolicy(),
        limits=SchedulerLimits(),
        agent="test",
        clock=asyncio.get_running_loop().time,
    )
    running = asyncio.create_task(scheduler.run())
    ended = asyncio.Event()
    results: list[CallResult] = []

    def on_result(result: CallResult) -> None:
        results.append(result)
        if len(results) == 2 * CALLS:
            ended.set()

    try:
        for _ in range(CALLS):
            for company in (1, 2):
                scheduler.submit(call_to("http://service.example/", company=company), on_result)
        async with asyncio.timeout(10):
            await ended.wait()
    finally:
        await cancel([running])
    assert sum(caller.started.values()) == 2 * CALLS
    assert max(caller.started.values()) == 1
    # Nor does one company take the other's start.
    assert caller.passes < 2 * CALLS
