"""The guard of outgoing calls: which urls, ports and addresses a connector may lead to.

A url is checked when a connector is saved. The HTTP client resolves names through the guard, which
checks every address, and connects only to what the guard returned. So a name whose addresses change
later cannot lead to a forbidden address.
"""

import asyncio
import socket
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from aiohttp import AsyncResolver, ThreadedResolver
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from connectors.errors import HostUnresolvedError, UrlForbiddenError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

RESOLVE_SECONDS = 1.0
DEFAULT_PORTS = {"http": 80, "https": 443}
_TRIES = 2  # of one look-up, within RESOLVE_SECONDS together
_LONGEST_NAME = 253
_CLOSED = "port {} is not open to connectors; accepted: 80 for http, 443 for https"

_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
# Not public, although `is_global` is true on the oldest Python that is supported.
_NOT_PUBLIC: tuple[Network, ...] = (
    IPv4Network("100.64.0.0/10"),  # carrier NAT; one cloud's metadata service too
    IPv4Network("168.63.129.16/32"),  # another cloud's, on an address that looks public
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),  # relays of 6to4, given up
    IPv4Network("240.0.0.0/4"),
    IPv6Network("2001::/23"),  # Teredo among them
    IPv6Network("3fff::/20"),
)


@dataclass(kw_only=True, eq=False)
class EgressGuard(AbstractResolver):
    """Allows public addresses on ports 80 and 443, and `allow_networks` on every port.

    It is the resolver of the HTTP client. It asks `resolver`, by default the system's name servers.
    `deadline` (seconds) bounds one look-up. The owner closes the guard.
    """

    allow_networks: Collection[Network] = ()
    resolver: AbstractResolver | None = None
    deadline: float = RESOLVE_SECONDS

    def __post_init__(self) -> None:
        self._name_server: AsyncResolver | None = None
        self.check_url = lru_cache(maxsize=4096)(self._check_url)

    async def check(self, url: str) -> None:
        """Raise UrlForbiddenError or HostUnresolvedError unless the url may be called now."""
        parts = self.check_url(url)
        if not is_literal(parts.raw_host or ""):
            await self.resolve(parts.raw_host or "", parts.port or 0)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Every address of the name `host`; the HTTP client may connect to all of them.

        Raises UrlForbiddenError or HostUnresolvedError.
        """
        try:
            async with asyncio.timeout(self.deadline):
                found = await self._resolver_for(host).resolve(host.rstrip("."), port, family)
        except TimeoutError:
            raise HostUnresolvedError(f"{host} could not be looked up in time") from None
        except UnicodeError:
            raise UrlForbiddenError("the host is not a name that can be looked up") from None
        except OSError:
            raise HostUnresolvedError(f"{host} does not resolve") from None
        if not found:
            raise HostUnresolvedError(f"{host} does not resolve")
        self._judge(host, port, [parse_address(each["host"]) for each in found])
        return found

    def check_literal(self, host: str, port: int) -> None:
        """Raise UrlForbiddenError unless an address that stands in a url may be called."""
        try:
            address = parse_address(host)
        except ValueError:
            raise UrlForbiddenError(f"{host} is not the usual form of an address") from None
        self._judge(host, port, [address])

    def _judge(self, host: str, port: int, addresses: Collection[Address]) -> None:
        closed = [each for each in addresses if not is_in(each, self.allow_networks)]
        if closed and port not in DEFAULT_PORTS.values():
            raise UrlForbiddenError(_CLOSED.format(port))
        if not all(map(is_public, closed)):
            raise UrlForbiddenError(f"{host} leads to an address that is not public")

    def _check_url(self, url: str) -> URL:
        """The url as the client reads it. Raises UrlForbiddenError for what its text forbids."""
        try:
            written, parts = urlsplit(url), URL(url)
            host, port = parts.raw_host, parts.port
        except ValueError:
            host = port = None
        if not host or not port or parts.scheme not in DEFAULT_PORTS:
            raise UrlForbiddenError("accepted: an address http:// or https://")
        if len(host) > _LONGEST_NAME:
            raise UrlForbiddenError(f"accepted: a host of at most {_LONGEST_NAME} characters")
        if "@" in written.netloc:
            raise UrlForbiddenError("accepted: an address without a user and password")
        if port in DEFAULT_PORTS.values() and port != DEFAULT_PORTS[parts.scheme]:
            raise UrlForbiddenError(_CLOSED.format(port))
        if is_literal(host):
            self.check_literal(host, port)
        return parts

    async def close(self) -> None:
        """Give up what is being looked up."""
        if self._name_server is not None:
            await self._name_server.close()
            self._name_server = None

    def _resolver_for(self, host: str) -> AbstractResolver:
        if self.resolver is not None:
            return self.resolver
        if host == "localhost":  # for which c-ares always has both loopback addresses
            return ThreadedResolver()
        if self._name_server is None:
            # c-ares needs no thread, so a look-up that hangs holds none.
            self._name_server = AsyncResolver(timeout=self.deadline / _TRIES, tries=_TRIES)
        return self._name_server


def is_literal(host: str) -> bool:
    """Whether a system might take the host for an address, in whatever form (127.1, 0x7f000001)."""
    if ":" in host or host.replace(".", "").isdigit():
        return True
    try:
        socket.inet_aton(host)
    except (OSError, UnicodeError):
        return False
    return True


def parse_address(text: str) -> Address:
    """The address without its scope (`%eth0`). Raises ValueError."""
    return ip_address(text.partition("%")[0])


@lru_cache(maxsize=4096)
def is_public(address: Address) -> bool:
    """Whether the address is on the public internet.

    An IPv6 address that embeds an IPv4 address (mapped, NAT64, 6to4) is as public as that one.
    """
    inner = _embedded(address)
    if inner is not None:
        return is_public(inner)
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return address.is_global and not address.is_multicast and not is_in(address, _NOT_PUBLIC)


def is_in(address: Address, networks: Collection[Network]) -> bool:
    """Whether one of the networks contains the address, or the IPv4 address embedded in it."""
    inner = _embedded(address)
    return any(
        candidate in network
        for candidate in (address, inner)
        if candidate is not None
        for network in networks
        if network.version == candidate.version
    )


def _embedded(address: Address) -> IPv4Address | None:
    if isinstance(address, IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.sixtofour
