"""What a role is to the process that runs it, and what it gets from that process."""

import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.kafka.consumer import PartitionedConsumer
from engine.kafka.publisher import Publisher
from engine.kafka.tracing import PassingTracer, Tracer
from engine.process.clock_skew import ClockSkew
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.devices import DeviceLookup
from engine.wiring.stores import Stores

Service = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, kw_only=True)
class Role:
    """A role, put together and not started.

    `consumer` ends when it is told to; each of `background`, by name, runs until it is cancelled.
    `checks`, by name, say whether the role is able to do its work; they do not wait. `needs` names
    the servers besides Kafka and Redis without which it cannot (engine.wiring.server_watch).
    """

    name: str
    consumer: PartitionedConsumer
    background: Mapping[str, Service] = field(default_factory=dict)
    checks: Mapping[str, Callable[[], bool]] = field(default_factory=dict)
    needs: Collection[str] = ()


@dataclass(frozen=True, kw_only=True)
class ProcessParts:
    """What the roles of one process share. Without `clocks` nobody measures them."""

    settings: Settings
    stores: Stores
    publisher: Publisher
    metrics: Metrics
    clocks: ClockSkew | None = None
    tracer: Tracer = field(default_factory=PassingTracer)

    def device_lookup(self) -> DeviceLookup:
        """The catalog's devices, through Redis."""
        return DeviceLookup(
            redis=self.stores.redis,
            prefix=self.settings.redis_prefix,
            database=self.stores.database,
            metrics=self.metrics,
            clock=time.time,
        )


Builder = Callable[[ProcessParts], Role]
