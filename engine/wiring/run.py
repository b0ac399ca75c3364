"""Runs the roles of a process until it is stopped, and watches the servers that they need."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial

import structlog
from redis.asyncio import RedisCluster
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from engine.kafka.client import KafkaCluster
from engine.kafka.producer import Publisher
from engine.kafka.tracing import open_tracer
from engine.process.health import PROBE, Check, health_server, listen, probe
from engine.process.lifecycle import (
    ParentProcess,
    run_services,
    stop_without_parent,
    tune_garbage_collector,
)
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.claims import TAGS
from engine.redis.role_states import RedisInspection, RoleStateStore
from engine.wiring.parts import (
    ProcessParts,
    Role,
    open_stores,
    outbox_drainer,
    refuse_old_schema_if_known,
    sql_answers,
)

log = structlog.get_logger(__name__)

ROLES = ("trigger", "connector", "recorder")
_ALWAYS_NEEDED = {"kafka", "redis"}
_KAFKA_SECONDS = 1.5
_PROBE_INTERVAL = 5.0
_PROBE_SECONDS = 60


async def run_roles(
    settings: Settings,
    names: Collection[str],
    stop: asyncio.Event,
    *,
    metrics: Metrics | None = None,
    parent: ParentProcess | None = None,
) -> None:
    """Run the roles of these `names` until `stop` is set. Raises the error that stops them earlier.

    `parent` is set if this process is one of several workers.
    """
    metrics = metrics or Metrics()
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_stores(settings))
        publisher = Publisher(settings, errors=metrics.kafka_errors)
        stack.push_async_callback(publisher.close)
        await publisher.start()
        cluster = await stack.enter_async_context(KafkaCluster(settings, _KAFKA_SECONDS))
        tracer = await stack.enter_async_context(open_tracer(settings))
        await refuse_old_schema_if_known(stores.database)
        parts = ProcessParts(
            settings=settings, stores=stores, publisher=publisher, metrics=metrics, tracer=tracer
        )
        roles = [_build(name, parts) for name in names]
        tune_garbage_collector()
        probes = _probes(parts, cluster)
        port = (
            listen(settings.metrics_host, settings.metrics_port, "METRICS_PORT")
            if parent is None
            else parent.listener
        )
        health = health_server(port, metrics.registry, _checks(roles, probes, stop))
        address = f"{settings.metrics_host}:{health.port}"
        log.info("started", roles=",".join(names), metrics=address)
        background = {name: work() for role in roles for name, work in role.background.items()}
        if parent is not None:
            background["parent watch"] = stop_without_parent(parent.pid, stop)
        await run_services(
            foreground={role.name: role.consumer.run(stop) for role in roles},
            background=background
            | {
                "outbox drain": outbox_drainer(stores, metrics).run(),
                "metrics port": health.serve_until(),
                "server watch": _watch_servers(parts, roles, probes),
            },
            stop=stop,
        )


def _build(name: str, parts: ProcessParts) -> Role:
    # A process imports only its own roles: the connector's HTTP client alone takes 9 MiB.
    match name:
        case "trigger":
            from engine.wiring.trigger import build_trigger as build
        case "connector":
            from engine.wiring.connector import build_connector as build
        case _:
            from engine.wiring.recorder import build_recorder as build
    return build(parts)


def _probes(parts: ProcessParts, cluster: KafkaCluster) -> dict[str, Check]:
    """The checks of servers by the names that /readyz shows."""
    redis, metrics = parts.stores.redis, parts.metrics

    async def write_to_redis() -> None:
        # Each node that holds claims, because a single node may be full, or a replica by now.
        tags = range(TAGS) if isinstance(redis, RedisCluster) else range(1)
        pipeline = redis.pipeline(transaction=False)
        for tag in tags:
            key = f"{parts.settings.redis_prefix}probe:{{{tag}}}"
            pipeline.set(key, b"", ex=_PROBE_SECONDS)
        await pipeline.execute()

    errors = metrics.redis_errors
    return {
        # The request has its own deadline: a connection that is cancelled while it is being made
        # stays open for ever.
        "kafka": partial(probe, cluster.probe, PROBE, metrics.kafka_errors, 10 * _KAFKA_SECONDS),
        "redis": partial(probe, redis.ping, PROBE, errors),
        "redis_writes": partial(probe, write_to_redis, "write", errors),
        "sql": partial(sql_answers, parts.stores, metrics),
    }


def _checks(
    roles: Collection[Role], servers: Mapping[str, Check], stop: asyncio.Event
) -> dict[str, Check]:
    """The checks of all roles. A check that several roles have passes if it does for all."""

    async def is_running() -> bool:
        return not stop.is_set()

    async def holds(name: str) -> bool:
        return all(role.results().get(name, True) for role in roles)

    names = {name for role in roles for name in role.results()}
    needed = _ALWAYS_NEEDED.union(*(role.needs for role in roles))
    return {
        "running": is_running,
        **{name: partial(holds, name) for name in sorted(names)},
        **{name: check for name, check in servers.items() if name in needed},
    }


async def _watch_servers(
    parts: ProcessParts, roles: Collection[Role], probes: Mapping[str, Check]
) -> None:
    """Every 5 s run the probes, inspect Redis and the clocks, and write reports on the roles.

    The probes count and log failures. While Redis is down no report is written.
    """
    metrics, clocks = parts.metrics, parts.clocks
    inspection = RedisInspection(metrics=metrics, **parts.stores.redis_options)
    inspections: list[Callable[[], Awaitable[None]]] = [
        inspection.inspect,
        *(partial(clocks.measure, server) for server in clocks.servers),
    ]
    states, instance = RoleStateStore(**parts.stores.redis_options), secrets.token_hex(8)
    while True:
        answers = await asyncio.gather(*(probe() for probe in probes.values()))
        failing = {name for name, ok in zip(probes, answers, strict=True) if not ok}
        for inspect in inspections:
            # A server that forbids INFO or TIME is not inspected.
            with suppress(RedisError, SQLAlchemyError, OSError, TimeoutError):
                await inspect()
        try:
            for role in roles:
                needed = _ALWAYS_NEEDED.union(role.needs)
                failing_checks = [name for name, holds in role.results().items() if not holds]
                await states.write(
                    instance,
                    role.name,
                    behind=role.consumer.seconds_behind(time.time()),
                    waits_for=[*sorted(needed & failing), *failing_checks],
                )
        except (RedisError, OSError, TimeoutError):
            metrics.redis_errors.inc()
        await asyncio.sleep(_PROBE_INTERVAL)
