"""The parts of a role that its process runs, and the parts that a process gives its roles."""

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
    """A role that is built and not started.

    `consumer` ends when its `stop` is set; each of `background`, by name, runs until cancelled.
    `checks`, by name, say whether the role can do its work, without waiting. `needs` names the
    servers besides Kafka and Redis that the role cannot work without (engine.wiring.server_watch).
    """

    name: str
    consumer: PartitionedConsumer
    background: Mapping[str, Service] = field(default_factory=dict)
    checks: Mapping[str, Callable[[], bool]] = field(default_factory=dict)
    needs: Collection[str] = ()


@dataclass(frozen=True, kw_only=True)
class ProcessParts:
    """The objects that a process's roles share. Without `clocks`, clock skew is not measured."""

    settings: Settings
    stores: Stores
    publisher: Publisher
    metrics: Metrics
    clocks: ClockSkew | None = None
    tracer: Tracer = field(default_factory=PassingTracer)

    def device_lookup(self) -> DeviceLookup:
        """A look-up of the catalog's devices, through Redis."""
        return DeviceLookup(
            redis=self.stores.redis,
            prefix=self.settings.redis_prefix,
            database=self.stores.database,
            metrics=self.metrics,
            clock=time.time,
        )


Builder = Callable[[ProcessParts], Role]
