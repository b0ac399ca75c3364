"""The addresses of single calls: names that change, several addresses, TLS for the name."""

import ssl
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import trustme

from connectors.call import CallLimits, client_context
from connectors.egress import EgressGuard
from connectors.model import CallFault
from tests.integration.connectors.scheduling import LOOPBACK, caller, egress
from tests.integration.connectors.single_calls import call_once, fault_of, result_of
from tests.servers.http_service import (
    HttpService,
    content,
    replying,
    serving,
)

PUBLIC = "93.184.216.34"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Dns:
    """A name server under the test's control: `addresses` of every name."""

    def __init__(self, *addresses: str) -> None:
        self.addresses: Sequence[str] = addresses
        self.requested: list[str] = []

    async def __call__(self, host: str, _port: int) -> Sequence[str]:
        self.requested.append(host)
        return self.addresses


class Tls:
    """An authority, and servers with certificates of it."""

    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        self.ca_file = directory / "authority.pem"
        self.authority.cert_pem.write_to_path(str(self.ca_file))

    def server(self, name: str) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.authority.issue_cert(name).configure_cert(context)
        return context


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    return Tls(tmp_path)


async def test_tls_is_verified_for_the_name_and_connects_to_the_checked_address(tls: Tls) -> None:
    seen: list[str | None] = []
    context = tls.server("shop.example")
    context.sni_callback = lambda _socket, name, _context: seen.append(name)
    dns = Dns("127.0.0.1")
    async with serving(content(), tls=context) as service, _over(dns, tls) as one:
        assert b"hello" in await call_once(one, service.url("/x", host="shop.example"))
        assert b"hello" in await call_once(one, service.url("/y", host="shop.example"))
        assert service.received[0].headers["host"] == f"shop.example:{service.port}"
        assert (seen, service.connections) == (["shop.example"], 1)
        assert set(dns.requested) == {"shop.example"}


async def test_a_large_reply_over_tls(tls: Tls) -> None:
    limits = CallLimits(reply_bytes=2_000_000)
    whole = bytes(range(256)) * 7000
    answer = replying(200, whole)
    context = client_context(tls.ca_file)
    async with (
        serving(answer, tls=tls.server("localhost")) as service,
        caller(ssl_context=context, limits=limits) as one,
    ):
        assert await call_once(one, service.url(host="localhost")) == whole


@pytest.mark.parametrize("known", [True, False])
async def test_a_certificate_for_another_name_or_of_a_stranger(tls: Tls, known: bool) -> None:
    context = client_context(tls.ca_file if known else None)
    name = "other.example" if known else "localhost"
    async with (
        serving(content(), tls=tls.server(name)) as service,
        caller(ssl_context=context) as one,
    ):
        assert await fault_of(one, service.url(host="localhost")) is CallFault.TLS
        assert service.received == []


def _over(dns: Dns, tls: Tls | None = None) -> Any:
    context = client_context(tls.ca_file) if tls else None
    return caller(egress(dns), ssl_context=context)


@pytest.mark.parametrize("turn", [1, 2, 3, 4])
async def test_a_name_that_turns_to_loopback_reaches_nothing(turn: int) -> None:
    """Good when the connector is saved, and for a while; then, at any later look-up, inside.

    127.0.0.2 stands for the public internet: it alone is open.
    """
    answers = iter([("127.0.0.2",)] * turn + [("127.0.0.1",)] * 99)

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return next(answers)

    guard = EgressGuard(allow_networks=[ip_network("127.0.0.2/32")], resolve=resolve)
    async with serving(content()) as inside:
        outside = HttpService(content())
        async with outside.running(host="127.0.0.2", port=inside.port), caller(guard) as one:
            url = inside.url(host="rebinding.example")
            await guard.check(url)  # it is saved
            results = [await result_of(one, url) for _ in range(4)]
        assert CallFault.FORBIDDEN in results
        assert (inside.connections, inside.received) == (0, [])
        assert len(outside.received) == results.count(None)


async def test_of_several_addresses_one_inside_closes_all() -> None:
    async with serving(content()) as inside:
        guard = EgressGuard(resolve=Dns(PUBLIC, "127.0.0.1"))
        async with caller(guard) as one:
            assert await fault_of(one, inside.url(host="two.example")) is CallFault.FORBIDDEN
        assert inside.connections == 0


async def test_a_kept_connection_is_not_used_once_the_name_leads_inside() -> None:
    dns = Dns("127.0.0.1")
    guard = egress(dns, allow=LOOPBACK)
    async with serving(content()) as service, caller(guard) as one:
        await call_once(one, service.url(host="shop.example"))
        dns.addresses = ("10.0.0.1",)
        assert await fault_of(one, service.url(host="shop.example")) is CallFault.FORBIDDEN
        assert len(service.received) == 1


async def test_a_redirect_is_not_followed() -> None:
    async with serving(content()) as inside, serving(replying(200)) as service, caller() as one:
        service.answer = replying(307, location=inside.url())
        await call_once(one, service.url())
        assert (len(service.received), inside.connections) == (1, 0)


@pytest.mark.parametrize("addresses", [("127.0.0.9", "127.0.0.1"), ("::1", "127.0.0.1")])
async def test_the_next_address_is_tried(addresses: tuple[str, ...]) -> None:
    guard = egress(Dns(*addresses), allow=[*LOOPBACK, ip_network("::1/128")])
    async with serving(content()) as service, caller(guard) as one:
        assert b"hello" in await call_once(one, service.url(host="shop.example"))
