"""The subjects that are measured with the service, each in a process of its own.

Arguments: subject, calls, url of the service, processor to run on (or -1). A subject prints one
JSON line: calls, seconds, and seconds on the processor.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from ipaddress import ip_network
from urllib.parse import urlsplit

import aiohttp
import h11
import httpx

from benchmarks.connector_role import role
from connectors.call import CallLimits, ServiceCaller, client_context
from connectors.egress import EgressGuard
from connectors.model import (
    Call,
    CallBeacon,
    CallDevice,
    Endpoint,
    HttpMethod,
    NamedReference,
    ParameterPlace,
)
from connectors.request import build_request
from connectors.resolver import CachingResolver
from engine.process.lifecycle import tune_garbage_collector

IN_FLIGHT = 512
COMPANIES = 16  # of 32 calls each
_DEADLINE = 120.0

Result = dict[str, float]
SendCall = Callable[[int], Awaitable[None]]
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter, h11.Connection]


async def _closed_loop(calls: int, send_call: SendCall) -> Result:
    """Make `calls` calls, IN_FLIGHT at a time; `send_call` gets the number of the company."""
    left = calls

    async def one_after_the_other(company: int) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await send_call(company)

    async with asyncio.timeout(_DEADLINE):
        await asyncio.gather(*(send_call(number % COMPANIES) for number in range(IN_FLIGHT)))
        begin, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(
            *(one_after_the_other(number % COMPANIES) for number in range(IN_FLIGHT))
        )
    seconds = time.perf_counter() - begin
    return {"calls": calls, "seconds": seconds, "seconds_processor": time.process_time() - cpu}


def _call(url: str) -> Call:
    return Call(
        id="5b65e1ab-325a-5714-9e85-1624f7c33474",
        company_id=1,
        campaign=NamedReference(7, "campaign"),
        venue=NamedReference(8, "venue"),
        beacon=CallBeacon(
            id=9, name="door", uuid="f7826da6-4fa2-4e98-8024-bc5b71e0893e", major=1, minor=2
        ),
        proximity="near",
        device=CallDevice(udid="phone 1", name="android", test=False),
        detected_at="2026-11-20T10:00:00+0000",
        fresh_until=0.0,
        endpoint=Endpoint(
            url=url,
            method=HttpMethod.POST,
            place=ParameterPlace.HEADER,
            parameters=(("token", "abc"),),
        ),
    )


async def aiohttp_session(calls: int, url: str) -> Result:
    """aiohttp, one session."""
    request = build_request(_call(url), agent="benchmark", now=0.0)
    headers = {name.decode(): value.decode() for name, value in request.headers}
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def send_call(_company: int) -> None:
            async with (
                asyncio.timeout(30),
                session.post(url, data=request.body, headers=headers) as response,
            ):
                assert response.status == 200
                await response.read()

        return await _closed_loop(calls, send_call)


async def _httpx_clients(calls: int, url: str, clients: int) -> Result:
    request = build_request(_call(url), agent="benchmark", now=0.0)
    each = IN_FLIGHT // clients
    limits = httpx.Limits(max_connections=each, max_keepalive_connections=each)
    async with AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(
                httpx.AsyncClient(limits=limits, timeout=30, trust_env=False)
            )
            for _ in range(clients)
        ]

        async def send_call(company: int) -> None:
            client = opened[company % clients]
            response = await client.post(url, content=request.body, headers=request.headers)
            assert response.status_code == 200

        return await _closed_loop(calls, send_call)


async def httpx_client(calls: int, url: str) -> Result:
    """The bare loop: httpx with its defaults, one client."""
    return await _httpx_clients(calls, url, 1)


async def httpx_client_a_company(calls: int, url: str) -> Result:
    """The bare loop with a client, and so a pool of 32 connections, a company."""
    return await _httpx_clients(calls, url, COMPANIES)


async def h11_connections(calls: int, url: str) -> Result:
    """The bare loop over the library that the product's caller is built on: a stack of connections,
    h11 on asyncio's streams, nothing else."""
    request, parts = build_request(_call(url), agent="benchmark", now=0.0), urlsplit(url)
    assert parts.hostname is not None
    headers = [(b"host", parts.netloc.encode()), *request.headers]
    headers.append((b"content-length", b"%d" % len(request.body)))
    message = h11.Request(method=request.method, target=parts.path, headers=headers)
    idle: list[_Connection] = []

    async def send_call(_company: int) -> None:
        async with asyncio.timeout(30):
            if not idle:
                idle.append(await _connected(parts.hostname, parts.port))
            connection = idle.pop()
            assert await _exchanged(connection, message, request.body) == 200
            idle.append(connection)

    try:
        return await _closed_loop(calls, send_call)
    finally:
        for _, writer, _ in idle:
            writer.close()


async def _connected(host: str | None, port: int | None) -> _Connection:
    return *await asyncio.open_connection(host, port), h11.Connection(h11.CLIENT)


async def _exchanged(connection: _Connection, message: h11.Request, body: bytes) -> int:
    """The status of the answer, whose body was read."""
    reader, writer, http = connection
    sent = (message, h11.Data(data=body), h11.EndOfMessage())
    writer.write(b"".join(http.send(each) or b"" for each in sent))
    status = 0
    while not isinstance(event := http.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(65_536))
        elif isinstance(event, h11.Response):
            status = event.status_code
    http.start_next_cycle()
    return status


async def caller(calls: int, url: str) -> Result:
    """connectors/call.py: h11 over its own connection pool, with the egress guard."""
    egress = EgressGuard(allow_networks=[ip_network("127.0.0.0/8")], resolve=CachingResolver())
    one = ServiceCaller(
        egress=egress, ssl_context=client_context(), limits=CallLimits(connect=5.0, call=30.0)
    )
    call = _call(url)

    async def send_call(company: int) -> None:
        request = build_request(call, agent="benchmark", now=0.0)
        assert (await one.send(company, request)).status == 200

    try:
        return await _closed_loop(calls, send_call)
    finally:
        await one.close()


SUBJECTS: dict[str, Callable[[int, str], Awaitable[Result]]] = {
    "aiohttp": aiohttp_session,
    "httpx": httpx_client,
    "httpx-a-company": httpx_client_a_company,
    "h11": h11_connections,
    "caller": caller,
    "role": role,
}


async def _run(name: str, calls: int, url: str) -> Result:
    return await SUBJECTS[name](calls, url)


def main() -> None:
    """Parse the arguments and run one subject."""
    name, calls, url, processor = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    tune_garbage_collector()
    if processor >= 0:
        os.sched_setaffinity(0, {processor})
    print(json.dumps(asyncio.run(_run(name, calls, url))))


if __name__ == "__main__":
    main()
