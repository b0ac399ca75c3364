"""The memory of a failed call is freed at once, and not by the garbage collector later."""

import gc

import pytest

from connectors.call import CallLimits
from connectors.errors import CallError
from connectors.scheduled_call import RetryPolicy
from tests.hostile.connectors.services import BURNING, absurd_waits
from tests.integration.connectors.scheduling import call_to, scheduling
from tests.servers.http_service import Answer, hanging, hanging_up, serving
from tests.servers.waiting import eventually

CALLS = 20
FAILING: dict[str, Answer] = {
    "heads": BURNING["heads"],
    "chunks": BURNING["chunks"],
    "status": absurd_waits(),
    "hanging up": hanging_up,
    "hanging": hanging,
}


@pytest.mark.parametrize("kind", sorted(FAILING))
async def test_a_failure_is_in_no_cycle(kind: str) -> None:
    """Each error kept its traceback, and with it up to 16 KiB of the reply."""
    limits = CallLimits(connect=1.0, call=1.0)
    retries = RetryPolicy(tries=2, first=0.01)
    async with (
        serving(FAILING[kind]) as service,
        scheduling(call_limits=limits, retries=retries) as one,
    ):
        gc.collect()
        gc.disable()
        try:
            for _ in range(CALLS):
                one.submit(call_to(service.url(), fresh=2.5))
            await eventually(lambda: len(one.results) == CALLS, what="all have failed")
            held = [each for each in gc.get_objects() if isinstance(each, CallError)]
        finally:
            gc.enable()
    assert not held
