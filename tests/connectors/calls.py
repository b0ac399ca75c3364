"""Calls, and a caller that makes them."""

import itertools
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from connectors.client import ServiceCaller, call_service, client_context
from connectors.egress import EgressGuard
from connectors.model import (
    Call,
    CallFault,
    Content,
    Declined,
    Endpoint,
    Failed,
    HttpMethod,
    ParameterPlace,
)
from connectors.request import build_request
from engine.kafka.messages import (
    BeaconReference,
    CampaignReference,
    CompanyReference,
    ConnectorCall,
    ConnectorEndpoint,
    KnownDevice,
    VenueReference,
)

ID = "5b65e1ab-325a-5714-9e85-1624f7c33474"
ENDPOINT = Endpoint(
    url="https://example.org/content", method=HttpMethod.POST, place=ParameterPlace.HEADER
)


def document(id_: str, udid: str, **device: Any) -> dict[str, Any]:
    """What a service receives."""
    unknown = dict.fromkeys(("id_connector", "version", "model"))
    uuid = "f7826da6-4fa2-4e98-8024-bc5b71e0893e"
    return {
        "id": id_,
        "campaign": {"id": 7, "name": "Café"},
        "venue": {"id": 8, "name": "Hall"},
        "beacon": {"id": 9, "name": "door", "uuid": uuid, "major": 1, "minor": 2},
        "proximity": "near",
        "device": {"udid": udid, "name": "android", "test": False, **unknown, **device},
        "detected_at": "2026-11-20T10:00:00+0000",
    }


def connector_endpoint(**fields: Any) -> ConnectorEndpoint:
    """A connector in a record of connector-calls."""
    values: dict[str, Any] = {"id": 1, "name": "c", "url": "https://e.org/"}
    values |= {"method": "POST", "auth": "header"}
    return ConnectorEndpoint(**(values | fields))


def message(**fields: Any) -> ConnectorCall:
    """A record of connector-calls."""
    values: dict[str, Any] = {
        "id": ID,
        "campaign": CampaignReference(7, "Café", "hash"),
        "company": CompanyReference(1),
        "venue": VenueReference(8, "Hall"),
        "beacon": BeaconReference(9, "door", "f7826da6-4fa2-4e98-8024-bc5b71e0893e", 1, 2),
        "proximity": "near",
        "device": KnownDevice(udid="phone é", name="ios", token_push="push me"),
        "title": "campaign's",
        "push": "campaign's push",
        "background": "#fff",
        "color": None,
        "detected_at": "2026-11-20T10:00:00+0000",
        "triggered_at": "2026-11-20T10:00:01+0000",
        "expires_at": "2026-11-20T10:05:00+0000",
        "delay": 3600,
    }
    return ConnectorCall(**(values | fields))


CALL = Call(
    id=ID,
    company_id=1,
    document=document(ID, "phone 1&2"),
    fresh_until=1000.0,
    endpoint=ENDPOINT,
)


def call(**endpoint: Any) -> Call:
    """The call, with another endpoint."""
    return replace(CALL, endpoint=replace(ENDPOINT, **endpoint))


LOOPBACK = (IPv4Network("127.0.0.0/8"),)
_numbers = itertools.count(1)


def call_to(url: str, *, company: int = 1, fresh: float = 60.0) -> Call:
    """A call about a detection that is fresh for so many seconds more."""
    number = next(_numbers)
    id_ = f"00000000-0000-5000-8000-{number:012d}"
    return Call(
        id=id_,
        company_id=company,
        document=document(id_, f"phone {number}"),
        fresh_until=time.time() + fresh,
        endpoint=replace(ENDPOINT, url=url),
    )


class Names(AbstractResolver):
    """Every name has the addresses that `look_up` returns then."""

    def __init__(self, look_up: Callable[[], Iterable[str]]) -> None:
        self._look_up = look_up

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        made = ResolveResult(hostname=host, host="", port=port, family=family, proto=0, flags=4)
        kinds = {True: socket.AF_INET6, False: socket.AF_INET}
        return [made | {"host": one, "family": kinds[":" in one]} for one in self._look_up()]

    async def close(self) -> None:
        pass


def egress(resolver: AbstractResolver | None = None) -> EgressGuard:
    return EgressGuard(allow_networks=LOOPBACK, resolver=resolver)


@asynccontextmanager
async def caller(
    guard: EgressGuard | None = None,
    ssl_context: Any = None,
    *,
    connect: float = 15.0,  # however busy the machine is
    deadline: float = 20.0,
) -> AsyncIterator[ServiceCaller]:
    """A caller that is closed at the end."""
    context = ssl_context or client_context()
    one = ServiceCaller(
        egress=guard or egress(), ssl_context=context, connect=connect, deadline=deadline
    )
    try:
        yield one
    finally:
        await one.close()


async def call_once(one: ServiceCaller, url: str) -> bytes:
    """The body of the reply."""
    return (await one.send(build_request(call_to(url), agent="test", now=0.0))).body


async def result_of(one: ServiceCaller, url: str) -> Content | Declined | CallFault:
    """The result of one try, or its fault."""
    try:
        return await call_service(one, call_to(url), "test")
    except Failed as error:
        return error.fault
