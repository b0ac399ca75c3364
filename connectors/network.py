"""TCP on asyncio: connections that go only where the guard lets them."""

import asyncio
import socket
from collections.abc import Sequence

from connectors.egress import EgressGuard
from connectors.streams import TcpStream

_MOST_TRIED = 8  # addresses of one name; all of them are checked


class GuardedBackend:
    """Opens connections to addresses that the guard gave, never to a name."""

    def __init__(self, egress: EgressGuard) -> None:
        self._egress = egress

    async def connect(self, host: str, port: int, *, seconds: float) -> TcpStream:
        """Connect to one of the checked addresses of `host`. Raises EgressError, OSError.

        `seconds` run over look-up, TCP and TLS together.
        """
        until = asyncio.get_running_loop().time() + seconds
        async with asyncio.timeout_at(until):
            addresses = await self._egress.addresses(host, port)
        return await _connect(addresses[:_MOST_TRIED], port, until)


async def _connect(addresses: Sequence[str], port: int, until: float) -> TcpStream:
    """The first address that answers; each gets an even share of what time is left."""
    loop = asyncio.get_running_loop()
    failure: OSError = OSError("no address")
    for number, address in enumerate(addresses):
        share = (until - loop.time()) / (len(addresses) - number)
        try:
            async with asyncio.timeout(share):
                return TcpStream(await _connected(address, port), until)
        except OSError as error:  # TimeoutError is one
            failure = error
    raise failure


async def _connected(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setblocking(False)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(one, (address, port))
    except BaseException:
        one.close()
        raise
    return one
