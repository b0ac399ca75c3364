"""The guard: which addresses, ports and urls are permitted."""

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any

import pytest
from aiohttp import AsyncResolver

from connectors.egress import EgressGuard, is_public, parse_address
from connectors.errors import HostUnresolvedError, UrlForbiddenError
from tests.connectors.calls import Names

PUBLIC = "93.184.216.34"


@pytest.mark.parametrize(
    "address",
    [
        *(PUBLIC, "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.0"),
        *("192.0.1.0", "223.255.255.255", "2606:2800:220:1:248:1893:25c8:1946", "2a00:1450:4007::"),
        *("::ffff:93.184.216.34", "64:ff9b::5db8:d822", "2002:5db8:d822::1"),
    ],
)
def test_public_addresses(address: str) -> None:
    assert is_public(parse_address(address))


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "100.127.255.255"),
        *("127.0.0.1", "127.255.255.254", "168.63.129.16", "169.254.0.1", "169.254.169.254"),
        *("172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.0.1"),
        *("198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1"),
        *("255.255.255.255", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1"),
        *("::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1"),
        *("100::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "3fff::1"),
        *("5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1"),
    ],
)
async def test_addresses_that_are_not_public_are_refused(address: str) -> None:
    assert not is_public(parse_address(address))
    with pytest.raises(UrlForbiddenError) as caught:
        await guard(PUBLIC, address).check("https://service.example/")
    assert address not in str(caught.value), "it may be one of the platform's own"


def guard(*addresses: str, allow: Sequence[str] = ()) -> EgressGuard:
    """A guard for which every name resolves to these addresses."""
    networks = [ip_network(network) for network in allow]
    return EgressGuard(allow_networks=networks, resolver=Names(lambda: addresses))


@pytest.mark.parametrize(
    "url",
    [
        "http://service.example",
        "https://service.example/",
        "HTTPS://Service.Example:443/a?b=c#d",
        "http://service.example:80/",
        f"https://{PUBLIC}/",
        "https://[2606:2800:220:1::1]/",
    ],
)
async def test_open_urls(url: str) -> None:
    await guard(PUBLIC, "2606:2800:220:1::1").check(url)


@pytest.mark.parametrize(
    "url",
    [
        *("", "service.example", "ftp://service.example/", "file:///etc/passwd", "http:///path"),
        *("https://user:password@service.example/", "https://@service.example/", "https://[::1/"),
        *("https://service.example:0/", "https://service.example:port/"),
        *("https://service.example:80/", "http://service.example:443/"),
        "https://service.example:8443/",
    ],
)
async def test_closed_urls(url: str) -> None:
    with pytest.raises(UrlForbiddenError) as caught:
        await guard(PUBLIC).check(url)
    assert "password" not in str(caught.value).replace("user and password", "")


@pytest.mark.parametrize(
    ("addresses", "allow", "port", "opens"),
    [
        (["127.0.0.1"], ["127.0.0.0/8"], 80, True),
        (["127.0.0.1"], ["127.0.0.0/8"], 8080, True),
        (["::ffff:127.0.0.1"], ["127.0.0.0/8"], 8080, True),
        (["127.0.0.1", "10.0.0.1"], ["127.0.0.0/8"], 80, False),
        (["127.0.0.1", PUBLIC], ["127.0.0.0/8"], 80, True),
        (["127.0.0.1", PUBLIC], ["127.0.0.0/8"], 8080, False),
        (["10.1.2.3", "fd00::1"], ["10.0.0.0/8", "fd00::/8"], 9000, True),
        (["169.254.169.254"], ["10.0.0.0/8"], 80, False),
    ],
)
async def test_allowed_networks(
    addresses: list[str], allow: list[str], port: int, opens: bool
) -> None:
    one = guard(*addresses, allow=allow)
    if opens:
        await one.check(f"http://service.example:{port}/")
        found = await one.resolve("service.example", port)
        assert [each["host"] for each in found] == addresses
    else:
        with pytest.raises(UrlForbiddenError):
            await one.check(f"http://service.example:{port}/")
        with pytest.raises(UrlForbiddenError):
            await one.resolve("service.example", port)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError("no such host"), HostUnresolvedError),
        (TimeoutError(), HostUnresolvedError),
        (UnicodeError("label too long"), UrlForbiddenError),
    ],
)
async def test_a_name_that_does_not_resolve(error: Exception, expected: type) -> None:
    def look_up() -> Any:
        raise error

    with pytest.raises(expected):
        await EgressGuard(resolver=Names(look_up)).check("https://service.example/")


async def test_odd_names() -> None:
    with pytest.raises(HostUnresolvedError):
        await guard().check("https://service.example/")
    with pytest.raises(UrlForbiddenError, match="253"):
        await guard(PUBLIC).check(f"https://{'a.' * 200}example/")


async def test_a_name_server_that_hangs_delays_nothing_else() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        resolver = AsyncResolver(nameservers=[place], timeout=5.0, tries=1)
        guard = EgressGuard(deadline=2.0, resolver=resolver)
        checks = [
            asyncio.create_task(guard.check(f"https://hangs{number}.example/"))
            for number in range(100)
        ]
        await asyncio.sleep(0.05)  # until all are asked
        # As a new connection to SQL or Redis does: a look-up on the loop's own threads.
        assert await asyncio.get_running_loop().getaddrinfo("localhost", 80)
        assert not any(check.done() for check in checks)
        errors = await asyncio.gather(*checks, return_exceptions=True)
        assert {type(error) for error in errors} == {HostUnresolvedError}
        await resolver.close()
