"""One call and its outcome."""

import pytest

from connectors.call import ServiceCaller
from connectors.errors import CallError
from connectors.model import CallFault
from connectors.request import build_request
from tests.integration.connectors.scheduling import call_to


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
