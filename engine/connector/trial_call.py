"""One call with a sample detection, to see what comes of it.

Nothing is published, nothing is tried again, and breakers do not count it.
"""

import time
from collections.abc import Awaitable, Callable

import structlog

from catalog.database import Database
from connectors.call import ServiceCaller
from connectors.errors import CallError
from connectors.model import Call, CallFault, Declined
from connectors.reply import read_reply
from connectors.reports import ReplyReport, Trial
from connectors.request import build_request
from engine.connector.call_report import secrets_of, show_content, show_reply, show_request
from engine.connector.endpoint_opener import EndpointDecryptor
from engine.connector.sample_call import sample_call

log = structlog.get_logger(__name__)

SAMPLE_UDID = "sample-device"


async def make_trial(caller: ServiceCaller, call: Call, *, agent: str) -> Trial:
    """Make the call, once, whatever the service answers."""
    now = time.time()
    try:
        request = build_request(call, agent=agent, now=now)
        shown = show_request(call, agent=agent, now=now)
    except ValueError:
        detail = "the connector's url or parameters make no valid request"
        return Trial(CallFault.REQUEST.value, detail)
    reply: ReplyReport | None = None
    begin, seconds = time.perf_counter(), None
    try:
        received = await caller.send(call.company_id, request)
        seconds = time.perf_counter() - begin
        reply = show_reply(call, request, received)
        result = read_reply(received.status, received.headers, received.body, now=time.time())
    except CallError as error:
        seconds = time.perf_counter() - begin if seconds is None else seconds
        return Trial(error.fault.value, error.detail, shown, reply, seconds)
    except Exception as error:  # as the role does; its message may quote what the service sent
        return _unforeseen(call, error)._replace(request=shown)
    if isinstance(result, Declined):
        return Trial("declined", "", shown, reply, seconds, result)
    content = show_content(result, secrets_of(call, request))
    return Trial("published", "", shown, reply, seconds, content)


def company_trials(
    database: Database, opener: EndpointDecryptor, caller: ServiceCaller, *, agent: str
) -> Callable[[int], Awaitable[Trial]]:
    """Trials by the id of the company. They raise NothingToTryError and what SQL raises."""

    async def attempt(company_id: int) -> Trial:
        call = await sample_call(database, opener, company_id, SAMPLE_UDID)
        try:
            return await make_trial(caller, call, agent=agent)
        finally:
            await caller.close()  # of what is idle: trials are rare

    return attempt


def _unforeseen(call: Call, error: Exception) -> Trial:
    kind = type(error).__name__
    log.error("call_failed_unforeseen", company=call.company_id, error=kind)
    return Trial(CallFault.REPLY.value, f"an answer that cannot be used ({kind})")
