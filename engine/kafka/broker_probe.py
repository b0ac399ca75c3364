"""Checks whether Kafka answers now, by a request on a connection of its own.

No result is cached. A producer or consumer that has nothing to send notices a broker that hangs
only after its request timeout.
"""

import asyncio
from contextlib import suppress

from aiokafka import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from engine.kafka.client_options import connection_options
from engine.process.cancelling import cancel
from engine.process.health import PROBE
from engine.process.server_errors import ServerErrors
from engine.process.settings import Settings

_DEADLINE = 1.5
_CLOSE_SECONDS = 2.0


class BrokerProbe:
    """Sends any one broker a request. Concurrent callers share one request.

    `errors` counts each request that no broker answered. `deadline` in seconds.
    """

    def __init__(
        self, settings: Settings, *, errors: ServerErrors, deadline: float = _DEADLINE
    ) -> None:
        self._options = connection_options(settings) | {"request_timeout_ms": int(deadline * 1000)}
        self._errors = errors
        self._deadline = deadline
        self._client: AIOKafkaClient | None = None
        self._probing: asyncio.Task[bool] | None = None

    async def answers(self) -> bool:
        """Whether a broker answers within the deadline. Raises no errors of aiokafka."""
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe(), name="kafka probe")
        # The request continues after the deadline until aiokafka's own deadline: a connection that
        # is cancelled while it is being made stays open for ever.
        await asyncio.wait([self._probing], timeout=self._deadline)
        if self._probing.done() and self._probing.result():
            self._errors.answered(PROBE)
            return True
        self._errors.lost(PROBE, "no broker answers")
        return False

    async def close(self) -> None:
        """Disconnect."""
        if self._probing is not None:
            await asyncio.wait([self._probing], timeout=_CLOSE_SECONDS)
            await cancel([self._probing])
        await self._disconnect()

    async def _probe(self) -> bool:
        answered = False
        with suppress(KafkaError, OSError, TimeoutError):  # that is the answer
            answered = await self._probe_any(await self._connected())
        if not answered:
            self._errors.inc()
            await self._disconnect()
        return answered

    async def _connected(self) -> AIOKafkaClient:
        if self._client is None:
            self._client = AIOKafkaClient(**self._options)
            await self._client.bootstrap()
        return self._client

    async def _probe_any(self, client: AIOKafkaClient) -> bool:
        for broker in client.cluster.brokers():
            with suppress(KafkaError, OSError, TimeoutError):  # another one may answer
                await client.send(broker.nodeId, MetadataRequest([]))
                return True
        return False

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(KafkaError, OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await client.close()
