"""Runs the roles of a process until it is stopped."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping

from catalog.redis_connection import REDIS_SECONDS
from engine.kafka.tracing import open_tracer
from engine.process.health import Check, HealthServer
from engine.process.lifecycle import ParentProcess, run_services, stop_without_parent
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.role_states import RedisInspection, RoleStateStore
from engine.wiring.connector import build_connector
from engine.wiring.parts import (
    Builder,
    ProcessParts,
    Role,
    open_broker_probe,
    open_publisher,
    open_stores,
    refuse_old_schema,
)
from engine.wiring.recorder import build_recorder
from engine.wiring.servers import (
    RoleStateWriter,
    ServerWatch,
    clock_skew,
    server_checks,
)
from engine.wiring.trigger import build_trigger

BUILDERS: Mapping[str, Builder] = {
    "trigger": build_trigger,
    "connector": build_connector,
    "recorder": build_recorder,
}
ROLES = tuple(BUILDERS)


async def run_roles(
    settings: Settings,
    names: Collection[str],
    stop: asyncio.Event,
    *,
    on_started: Callable[[int], None] | None = None,
    metrics: Metrics | None = None,
    parent: ParentProcess | None = None,
) -> None:
    """Run the roles of these `names` until `stop` is set. Raises the error that stops them earlier.

    `on_started` is called with the metrics port once everything is connected. `parent` is set if
    this process is one of several workers.
    """
    metrics = metrics or Metrics()
    async with (
        open_stores(settings) as stores,
        open_publisher(settings, metrics) as publisher,
        open_broker_probe(settings, metrics) as probe,
        open_tracer(settings) as tracer,
    ):
        await refuse_old_schema(stores)
        clocks = clock_skew(stores, metrics)
        parts = ProcessParts(
            settings=settings,
            stores=stores,
            publisher=publisher,
            metrics=metrics,
            clocks=clocks,
            tracer=tracer,
        )
        roles = [BUILDERS[name](parts) for name in names]
        checks = server_checks(settings, stores, probe, metrics)
        inspection = RedisInspection(redis=stores.redis, metrics=metrics, deadline=REDIS_SECONDS)
        watch = ServerWatch(probes=checks, inspection=inspection, clocks=clocks)
        health = HealthServer(
            registry=metrics.registry,
            checks=_checks(roles, checks, stop),
            host=settings.metrics_host,
            port=settings.metrics_port,
            listener=None if parent is None else parent.listener,
        )
        states = RoleStateWriter(
            store=RoleStateStore(**stores.redis_options),
            roles=roles,
            failing=lambda: watch.failing,
            metrics=metrics,
        )
        if on_started is not None:
            on_started(health.port)
        background = {name: work() for role in roles for name, work in role.background.items()}
        if parent is not None:
            background["parent watch"] = stop_without_parent(parent.pid, stop)
        await run_services(
            foreground={role.name: role.consumer.run(stop) for role in roles},
            background=background
            | {
                "outbox drain": stores.drain_outbox(metrics.index_lag.set),
                "metrics port": health.run(),
                "server watch": watch.run(),
                "role states": states.run(),
            },
            stop=stop,
        )


def _checks(
    roles: Collection[Role], servers: Mapping[str, Check], stop: asyncio.Event
) -> dict[str, Check]:
    """The checks of all roles. A check that several roles have passes if it does for all."""
    by_name: dict[str, list[Callable[[], bool]]] = {"running": [lambda: not stop.is_set()]}
    for role in roles:
        for name, check in role.checks.items():
            by_name.setdefault(name, []).append(check)
    answering: dict[str, Check] = {name: _answering(found) for name, found in by_name.items()}
    needed = {"kafka", "redis", *(name for role in roles for name in role.needs)}
    return answering | {name: check for name, check in servers.items() if name in needed}


def _answering(checks: Collection[Callable[[], bool]]) -> Callable[[], Awaitable[bool]]:
    async def answer() -> bool:
        return all(check() for check in checks)

    return answer
