"""The guard of outgoing calls: which urls, ports and addresses a connector may lead to.

A url is checked when a connector is saved and at every call. The connection uses the guard again
and connects only to an address that the guard returned. So a host name whose addresses change
between the check and the connection cannot lead to a forbidden address.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from connectors.errors import HostUnresolvedError, UrlForbiddenError
from connectors.resolver import CachingResolver

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

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

RESOLVE_SECONDS = 1.0
_MOST_ADDRESSES = 64  # each is checked at every call
_MOST_JUDGED = 4096
_LONGEST_NAME = 253
_DEFAULT_PORTS = {"http": 80, "https": 443}

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class _Verdict(NamedTuple):
    """What an address is: in one of the allowed networks, or public."""

    is_opened: bool
    is_public: bool


class EgressGuard:
    """Allows public addresses on ports 80 and 443, and `allow_networks` on every port.

    `deadline` (seconds) bounds one look-up. `resolve` returns the addresses of a name and raises
    OSError or UnicodeError. Without `resolve` the guard looks names up in threads of its own: make
    one guard a process, not one a check.
    """

    def __init__(
        self,
        *,
        allow_networks: Collection[Network] = (),
        resolve: Resolve | None = None,
        deadline: float = RESOLVE_SECONDS,
    ) -> None:
        self._allowed = tuple(allow_networks)
        self._resolve = CachingResolver() if resolve is None else resolve
        self._deadline = deadline
        # The verdict about an address never changes; only names are resolved again.
        self._judged = lru_cache(maxsize=_MOST_JUDGED)(self._judge)

    async def check(self, url: str) -> None:
        """Raise UrlForbiddenError or HostUnresolvedError unless the url may be called now."""
        parts = _split(url)
        assert parts.hostname is not None  # noqa: S101  # _split refused it
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        other_port = port != _DEFAULT_PORTS[parts.scheme]
        await self._addresses(parts.hostname, port, other_port)

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """Every address of `host`; all are allowed.

        Raises UrlForbiddenError or HostUnresolvedError.
        """
        return await self._addresses(host, port, port not in _DEFAULT_PORTS.values())

    async def _addresses(self, host: str, port: int, other_port: bool) -> Sequence[str]:
        found = await self._look_up(host, port)
        verdicts = [self._judged(text) for text in found]
        if other_port and not all(verdict.is_opened for verdict in verdicts):
            raise UrlForbiddenError(
                f"port {port} is not open to connectors; accepted: 80 for http, 443 for https"
            )
        if not all(verdict.is_opened or verdict.is_public for verdict in verdicts):
            raise UrlForbiddenError(f"{host} leads to an address that is not public")
        return found

    def _judge(self, text: str) -> "_Verdict":
        address = parse_address(text)
        return _Verdict(is_in(address, self._allowed), is_public(address))

    async def _look_up(self, host: str, port: int) -> Sequence[str]:
        try:
            async with asyncio.timeout(self._deadline):
                found = await self._resolve(host, port)
        except UnicodeError:
            raise UrlForbiddenError("the host is not a name that can be looked up") from None
        except TimeoutError:
            raise HostUnresolvedError(f"{host} could not be looked up in time") from None
        except OSError:
            raise HostUnresolvedError(f"{host} does not resolve") from None
        if not found:
            raise HostUnresolvedError(f"{host} does not resolve")
        if len(found) > _MOST_ADDRESSES:
            raise UrlForbiddenError(f"{host} has more than {_MOST_ADDRESSES} addresses")
        return found


def _split(url: str) -> SplitResult:
    """The parts of a url whose text allows calls. Raises UrlForbiddenError."""
    try:
        parts = urlsplit(url)
        hostname, port = parts.hostname, parts.port
    except ValueError:
        raise UrlForbiddenError("accepted: an address http:// or https://") from None
    if parts.scheme not in _DEFAULT_PORTS or not hostname or port == 0:
        raise UrlForbiddenError("accepted: an address http:// or https://")
    if len(hostname) > _LONGEST_NAME:
        raise UrlForbiddenError(f"accepted: a host of at most {_LONGEST_NAME} characters")
    if parts.username is not None or parts.password is not None:
        raise UrlForbiddenError("accepted: an address without a user and password")
    return parts


def parse_address(text: str) -> Address:
    """The address without its scope (`%eth0`). Raises ValueError."""
    return ip_address(text.partition("%")[0])


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
