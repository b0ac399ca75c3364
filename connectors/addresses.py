"""Which addresses are public. Pure."""

from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
# What `is_global` lets pass, on the oldest Python that is supported, and should not here.
_NOT_PUBLIC: tuple[Network, ...] = (
    IPv4Network("100.64.0.0/10"),  # carrier NAT; one cloud's metadata service too
    IPv4Network("168.63.129.16/32"),  # another cloud's, on an address that looks public
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),  # relays of 6to4, given up
    IPv4Network("240.0.0.0/4"),
    IPv6Network("2001::/23"),  # Teredo among them
    IPv6Network("3fff::/20"),
)


def parse_address(text: str) -> Address:
    """An address as the resolver writes it, a scope (`%eth0`) left out. Raises ValueError."""
    return ip_address(text.partition("%")[0])


def is_public(address: Address) -> bool:
    """Whether the address is one of the internet at large.

    An IPv6 address that stands for an IPv4 address (mapped, NAT64, 6to4) is as public as that.
    """
    inner = _embedded(address)
    if inner is not None:
        return is_public(inner)
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return address.is_global and not address.is_multicast and not is_in(address, _NOT_PUBLIC)


def is_in(address: Address, networks: Collection[Network]) -> bool:
    """Whether one of the networks holds the address, also where IPv6 wraps an IPv4 address."""
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
