"""Makes one call about a sample detection, so that people see how a company's service answers.

The result is not published, a failure is not retried, and breakers do not count the call. Request
and reply are shown clipped, with the secrets masked.
"""

import json
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, quote_plus

import httpx
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import Database
from catalog.models import Beacon, Campaign, Connector, Venue
from connectors.client import Reply, ServiceCaller, call_service
from connectors.errors import EndpointError, NothingToTryError
from connectors.model import (
    Call,
    CallResult,
    Declined,
    Failed,
    Pairs,
    ReplyReport,
    RequestReport,
    Trial,
)
from connectors.request import SAFE_IN_QUERY
from engine.connector.calls import EndpointDecryptor
from engine.kafka.messages import BeaconReference, ConnectorEndpoint, format_instant

SAMPLE_UDID = "sample-device"
_FRESH_SECONDS = 300.0
_SAMPLE_DEVICE = {"name": "android", "version": "14", "model": "sample", "test": True}
_SAMPLE_BEACON = BeaconReference(0, "sample beacon", str(uuid.UUID(int=0)), 0, 0)
_MASK = "*****"
_SHORTEST_SECRET = 4  # masking a shorter value would mask half of the text
_LONGEST_BODY = 4000
_SIGNATURE = "webhook-signature"
_OF_THE_CLIENT = ("host", "content-length")


@dataclass(frozen=True)
class ConnectorTrials:
    """Tries connectors; `make_caller` makes a caller for each trial."""

    database: Database
    decryptor: EndpointDecryptor
    make_caller: Callable[[], ServiceCaller]
    agent: str

    async def run(self, company_id: int, udid: str = SAMPLE_UDID) -> Trial:
        """Call the company's service once, about a device that is a test device.

        Every answer of the service becomes a Trial. Raises NothingToTryError, and SQLAlchemy's
        errors.
        """
        call = await self._sample_call(company_id, udid)
        caller = self.make_caller()
        try:
            return await _try(caller, call, self.agent)
        finally:
            await caller.close()

    async def _sample_call(self, company_id: int, udid: str) -> Call:
        async with self.database.read() as session:
            query = select(Connector).where(Connector.company_id == company_id)
            connector = await session.scalar(query)
            if connector is None:
                raise NothingToTryError("the company has no connector")
            sample = await _sample(session, company_id)
        fields = ConnectorEndpoint.__struct_fields__
        endpoint = ConnectorEndpoint(**{name: getattr(connector, name) for name in fields})
        try:
            decrypted = self.decryptor.decrypt(endpoint)
        except EndpointError as error:
            raise NothingToTryError(str(error)) from None
        now, id_ = time.time(), str(uuid.uuid4())
        return Call(
            id=id_,
            company_id=company_id,
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
        "beacon": {name: getattr(beacon, name) for name in BeaconReference.__struct_fields__},
    }


async def _try(caller: ServiceCaller, call: Call, agent: str) -> Trial:
    seen: list[httpx.Request | Reply] = []
    result: CallResult
    begin = time.perf_counter()
    try:
        result = await call_service(caller, call, agent, seen)
    except Failed as error:
        result = error
    trial = Trial("published", "", seconds=time.perf_counter() - begin if seen else None)
    secrets: list[str] = []
    for each in seen:
        if isinstance(each, httpx.Request):
            secrets = _secrets_of(call, each)
            url, body = _masked(str(each.url), secrets), _shown_body(each.content, secrets)
            headers = tuple(h for h in _shown_headers(each, secrets) if h[0] not in _OF_THE_CLIENT)
            trial = trial._replace(request=RequestReport(each.method, url, headers, body))
        else:
            headers, body = _shown_headers(each, secrets), _shown_body(each.body, secrets)
            trial = trial._replace(reply=ReplyReport(each.status, headers, body))
    if isinstance(result, Failed):
        return trial._replace(outcome=result.fault.value, detail=result.detail)
    if isinstance(result, Declined):
        return trial._replace(outcome="declined", result=result)
    names = ("content", "title", "push")
    texts = {name: text for name in names if (text := getattr(result, name)) is not None}
    masked: Any = {name: _clipped(_masked(text, secrets)) for name, text in texts.items()}
    return trial._replace(result=replace(result, **masked))


def _shown_headers(message: httpx.Request | Reply, secrets: Collection[str]) -> Pairs:
    return tuple((name, _masked(value, secrets)) for name, value in message.headers.items())


def _secrets_of(call: Call, request: httpx.Request) -> list[str]:
    """The values to mask, as plain text, in JSON and in urls; the longest first."""
    plain = [value for _, value in call.endpoint.parameters]
    plain += [call.endpoint.secret or "", request.headers.get(_SIGNATURE, "")]
    forms = {*plain, *map(quote, plain), *map(quote_plus, plain)}
    forms |= {quote(each, safe=SAFE_IN_QUERY) for each in plain}
    forms |= {json.dumps(each, ensure_ascii=False)[1:-1] for each in plain}
    return sorted(forms, key=len, reverse=True)


def _masked(text: str, secrets: Collection[str]) -> str:
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, _MASK)
    return text


def _shown_body(raw: bytes, secrets: Collection[str]) -> str:
    """The body as text, JSON indented. Of bytes that are not text only the number is shown."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return f"({len(raw)} bytes that are not text)"
    with suppress(ValueError, RecursionError):  # not JSON
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    # JSON may contain lone surrogates, which UTF-8 cannot encode.
    return _clipped(_masked(text.encode(errors="replace").decode(), secrets))


def _clipped(text: str) -> str:
    more = len(text) - _LONGEST_BODY
    return text if more <= 0 else f"{text[:_LONGEST_BODY]}\n... ({more} more characters)"
