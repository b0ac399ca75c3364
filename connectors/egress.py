"""The guard of outgoing calls: which urls, ports and addresses a connector may lead to.

It is asked when a connector is saved, at every call, and once more by the connection itself,
which goes to an address that this guard gave and to no other. So a name that changes between
the check and the connection leads nowhere.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from urllib.parse import SplitResult, urlsplit

from connectors.addresses import Network, is_in, is_public, parse_address
from connectors.errors import HostUnresolvedError, UrlForbiddenError
from connectors.resolver import CachingResolver

RESOLVE_SECONDS = 1.0
_MOST_ADDRESSES = 64  # each is checked at every call
_LONGEST_NAME = 253
_DEFAULT_PORTS = {"http": 80, "https": 443}

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


class EgressGuard:
    """What is public is open, on the default port of its scheme.

    `allow_networks` opens others besides, on every port: a port other than 80 and 443 is open
    only where all addresses of the name lie in them. `deadline` (seconds) bounds one look-up;
    `resolve` gives the addresses of a name and raises OSError or UnicodeError; without it, names
    are looked up by threads of this guard's own: make one guard a process, not one a check.
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

    async def check(self, url: str) -> None:
        """Pass if the url may be called now. Raises UrlForbiddenError or HostUnresolvedError."""
        parts = _split(url)
        assert parts.hostname is not None  # noqa: S101  # _split refused it
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        other_port = port != _DEFAULT_PORTS[parts.scheme]
        await self._addresses(parts.hostname, port, other_port)

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """Every address of `host`, all of them checked: one may connect to any.

        Raises UrlForbiddenError or HostUnresolvedError.
        """
        return await self._addresses(host, port, port not in _DEFAULT_PORTS.values())

    async def _addresses(self, host: str, port: int, other_port: bool) -> Sequence[str]:
        found = await self._look_up(host, port)
        addresses = [parse_address(text) for text in found]
        allowed = [is_in(address, self._allowed) for address in addresses]
        if other_port and not all(allowed):
            raise UrlForbiddenError(
                f"port {port} is not open to connectors; accepted: 80 for http, 443 for https"
            )
        if not all(
            is_public(address) or opened for address, opened in zip(addresses, allowed, strict=True)
        ):
            raise UrlForbiddenError(f"{host} leads to an address that is not public")
        return found

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
    """The parts of a url that may be called as far as its text goes. Raises UrlForbiddenError."""
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
