"""Makes one call about a sample detection, so that people see how a company's service answers.

The result is not published, a failure is not retried, and breakers do not count the call. Request
and reply are shown clipped, with the secrets masked.
"""

import json
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote, quote_plus

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.accounts import find_company
from catalog.database import Database
from catalog.models import Beacon, Campaign, Connector, Venue
from connectors.client import Reply, ServiceCaller, call_service
from connectors.errors import CallError, EndpointError, NothingToTryError
from connectors.model import (
    Call,
    CallFault,
    Content,
    Declined,
    Pairs,
    ReplyReport,
    RequestReport,
    Trial,
)
from connectors.request import Request, build_request, usable_parameters
from engine.connector.calls import EndpointDecryptor
from engine.kafka.messages import BeaconReference, ConnectorEndpoint, format_instant

SAMPLE_UDID = "sample-device"
_FRESH_SECONDS = 300.0
_SAMPLE_DEVICE = {"name": "android", "version": "14", "model": "sample", "test": True}
_SAMPLE_BEACON = BeaconReference(0, "sample beacon", str(uuid.UUID(int=0)), 0, 0)
_BEACON_FIELDS = BeaconReference.__struct_fields__
MASK = "*****"
_SHORTEST_SECRET = 4  # masking a shorter value would mask half of the text
_LONGEST_BODY = 4000
_MOST_HEADERS = 100
_SIGNATURE = "webhook-signature"
_SAFE = "/?:@!$'()*,;"


def company_trials(
    database: Database,
    decryptor: EndpointDecryptor,
    make_caller: Callable[[], ServiceCaller],
    *,
    agent: str,
) -> Callable[[int], Awaitable[Trial]]:
    """A function that tries the connector of a company by its id.

    It raises NothingToTryError and SQLAlchemy's errors.
    """

    async def try_connector(company_id: int) -> Trial:
        call = await sample_call(database, decryptor, company_id, SAMPLE_UDID)
        caller = make_caller()
        try:
            return await make_trial(caller, call, agent=agent)
        finally:
            await caller.close()

    return try_connector


async def make_trial(caller: ServiceCaller, call: Call, *, agent: str) -> Trial:
    """Make the call once; every answer of the service becomes a Trial."""
    try:
        trial = Trial("", "", show_request(call, agent=agent, now=time.time()))
    except ValueError:
        detail = "the connector's url or parameters make no valid request"
        return Trial(CallFault.REQUEST.value, detail)
    begin = time.perf_counter()
    secrets: list[str] = []

    def on_reply(request: Request, reply: Reply) -> None:
        nonlocal trial
        secrets.extend(secrets_of(call, request))
        seconds = time.perf_counter() - begin
        trial = trial._replace(reply=show_reply(reply, secrets), seconds=seconds)

    try:
        result = await call_service(caller, call, agent=agent, clock=time.time, on_reply=on_reply)
    except CallError as error:
        seconds = time.perf_counter() - begin if trial.seconds is None else trial.seconds
        return trial._replace(outcome=error.fault.value, detail=error.detail, seconds=seconds)
    if isinstance(result, Declined):
        return trial._replace(outcome="declined", result=result)
    return trial._replace(outcome="published", result=show_content(result, secrets))


async def sample_call(
    database: Database, decryptor: EndpointDecryptor, company: str | int, udid: str
) -> Call:
    """A call about one of the company's own campaigns of format connector, or a made-up one.

    `company` is an id, or a text that is a name or an id. The device `udid` is a test device.
    Raises NothingToTryError, and SQLAlchemy's errors.
    """
    async with database.read() as session:
        found = await find_company(session, company)
        if found is None:
            raise NothingToTryError(f"there is no company {company!r}")
        connector = await session.scalar(select(Connector).where(Connector.company_id == found.id))
        if connector is None:
            raise NothingToTryError(f"the company {found.name!r} has no connector")
        sample = await _sample(session, found.id)
    fields = ConnectorEndpoint.__struct_fields__
    endpoint = ConnectorEndpoint(**{name: getattr(connector, name) for name in fields})
    try:
        decrypted = decryptor.decrypt(endpoint)
    except EndpointError as error:
        raise NothingToTryError(str(error)) from None
    now, id_ = time.time(), str(uuid.uuid4())
    return Call(
        id=id_,
        company_id=found.id,
        document={
            "id": id_,
            **sample,
            "proximity": "near",
            "device": {"udid": udid, "id_connector": None, **_SAMPLE_DEVICE},
            "detected_at": format_instant(now),
        },
        fresh_until=now + _FRESH_SECONDS,
        endpoint=decrypted,
    )


async def _sample(session: AsyncSession, company_id: int) -> dict[str, dict[str, Any]]:
    """The company's first campaign of format connector that targets a beacon, or a made-up one."""
    row: Any = (
        await session.execute(
            select(Campaign.id, Campaign.name, Venue.id, Venue.name, Beacon)
            .join(Venue, Campaign.venue_id == Venue.id)
            .join(Campaign.beacons)
            .where(Venue.company_id == company_id, Campaign.format == "connector")
            .order_by(Campaign.id, Beacon.id)
            .limit(1)
        )
    ).first()
    if row is None:
        row = (0, "sample campaign", 0, "sample venue", _SAMPLE_BEACON)
    campaign_id, campaign, venue_id, venue, beacon = row
    return {
        "campaign": {"id": campaign_id, "name": campaign},
        "venue": {"id": venue_id, "name": venue},
        "beacon": {name: getattr(beacon, name) for name in _BEACON_FIELDS},
    }


def show_request(call: Call, *, agent: str, now: float) -> RequestReport:
    """The request, with the parameters' values and the signature masked."""
    masked = tuple((name, MASK) for name, _ in call.endpoint.parameters)
    endpoint = replace(call.endpoint, parameters=masked)
    request = build_request(replace(call, endpoint=endpoint), agent=agent, now=now)
    headers = [(name.decode(), value.decode()) for name, value in request.headers]
    used = {name for name, _ in usable_parameters(call)}
    return RequestReport(
        method=request.method,
        url=request.url,
        headers=tuple((name, MASK if name == _SIGNATURE else v) for name, v in headers),
        body=_clipped(_body(request.body)),
        left_out=tuple(sorted({name for name, _ in call.endpoint.parameters} - used)),
    )


def show_reply(reply: Reply, secrets: Collection[str]) -> ReplyReport:
    """The reply. Secrets that it repeats are masked."""
    headers = [(name, masked(value, secrets)) for name, value in reply.headers.items()]
    return ReplyReport(
        status=reply.status,
        headers=tuple(headers[:_MOST_HEADERS]),
        body=_clipped(masked(_body(reply.body), secrets)),
    )


def secrets_of(call: Call, request: Request) -> list[str]:
    """The values to mask, as plain text, in JSON and in urls; the longest first."""
    plain = [value for _, value in call.endpoint.parameters]
    plain += [call.endpoint.secret or ""]
    plain += [value.decode() for name, value in request.headers if name == _SIGNATURE.encode()]
    written = (str, _in_json, quote, quote_plus, partial(quote, safe=_SAFE))
    return sorted({form(each) for each in plain for form in written}, key=len, reverse=True)


def _in_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def masked(text: str, secrets: Collection[str]) -> str:
    """The text with the secrets replaced by MASK."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    return text


def show_content(content: Content, secrets: Collection[str]) -> Content:
    """The content of the notification."""

    def shown(text: str) -> str:
        return _clipped(masked(_encodable(text), secrets))

    return Content(
        format=content.format,
        content=shown(content.content),
        title=content.title and shown(content.title),
        push=content.push and shown(content.push),
    )


def request_lines(request: RequestReport) -> Iterator[str]:
    """The lines of the request for a terminal."""
    yield f"{request.method} {request.url}"
    yield from _message(request.headers, request.body)
    if request.left_out:
        yield ""
        yield f"(left out, because the request itself sets these: {', '.join(request.left_out)})"


def reply_lines(reply: ReplyReport) -> Iterator[str]:
    """The lines of the reply for a terminal."""
    yield f"status {reply.status}"
    yield from _message(reply.headers, reply.body)


def result_lines(result: Content | Declined) -> Iterator[str]:
    """The lines of the result for a terminal."""
    if isinstance(result, Declined):
        yield "no notification: the service declines"
        return
    yield "a notification"
    for name, text in (("title", result.title), ("push", result.push)):
        yield f"  {name:8} " + ("(the campaign's)" if text is None else text)
    yield f"  {result.format:8} {result.content[:200]}"


def _message(headers: Pairs, body: str) -> Iterator[str]:
    yield from (f"{name}: {value}" for name, value in headers)
    if body:
        yield ""
        yield from body.splitlines()


def _body(raw: bytes) -> str:
    """The body as text, JSON indented. Of bytes that are not text only the number is shown."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return f"({len(raw)} bytes that are not text)"
    try:
        return _encodable(json.dumps(json.loads(text), indent=2, ensure_ascii=False))
    except (ValueError, RecursionError):  # not JSON
        return "".join(each if each.isprintable() or each == "\n" else "?" for each in text)


def _encodable(text: str) -> str:
    """The text without lone surrogates, which JSON may contain and UTF-8 cannot encode."""
    return text.encode(errors="replace").decode()


def _clipped(text: str) -> str:
    more = len(text) - _LONGEST_BODY
    return text if more <= 0 else f"{text[:_LONGEST_BODY]}\n... ({more} more characters)"
