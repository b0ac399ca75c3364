"""The management interface as a process: opens what it needs, serves, closes."""

import asyncio
import time
from datetime import UTC, datetime
from functools import partial

import structlog
from fastapi import FastAPI

from api.app import build_app
from api.middleware import ApiMetrics
from api.permissions import Services
from api.sessions import Sessions
from connectors.egress import EgressGuard
from engine import engine_version
from engine.connector.stores import CallHistoryReader
from engine.process.health import HttpServer, health_server, listen
from engine.process.lifecycle import run_services, tune_garbage_collector
from engine.process.metrics import Metrics
from engine.process.settings import Settings
from engine.redis.claims import ClaimReader
from engine.redis.decisions import DecisionStore, TailStore
from engine.redis.devices import DeviceKey
from engine.redis.figures import FigureStore, RecentDetectionStore
from engine.redis.role_states import RoleStateStore
from engine.wiring.connector import connector_trials
from engine.wiring.parts import (
    Stores,
    catalog_limits,
    cipher_of,
    device_eraser,
    open_stores,
    outbox_drainer,
    refuse_old_schema_if_known,
    sql_answers,
)

log = structlog.get_logger(__name__)

CONNECTIONS = 500


def api_server(app: FastAPI, settings: Settings) -> HttpServer:
    """Serves the application; the port is open. Raises ProcessError."""
    return HttpServer(
        app,
        listen(settings.api_host, settings.api_port, "API_PORT"),
        connections=CONNECTIONS,
        proxy_headers=bool(settings.api_trusted_proxies),
        forwarded_allow_ips=[str(network) for network in settings.api_trusted_proxies],
        timeout_graceful_shutdown=int(settings.drain_timeout) or 1,
    )


async def serve_api(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Raises the error that stops it earlier."""
    metrics = Metrics()
    async with open_stores(settings) as stores:
        await refuse_old_schema_if_known(stores.database)

        async def is_ready() -> bool:
            return not stop.is_set() and await sql_answers(stores, metrics)

        app = build_app(
            services=build_services(settings, stores),
            metrics=ApiMetrics(metrics.registry),
            version=engine_version(),
            cors_origins=settings.api_cors_origins,
            with_console=settings.console,
        )
        tune_garbage_collector()
        server = api_server(app, settings)
        port = listen(settings.metrics_host, settings.api_metrics_port, "API_METRICS_PORT")
        health = health_server(port, metrics.registry, {"serving": is_ready})
        log.info("serving", host=settings.api_host, port=server.port, metrics_port=health.port)
        await run_services(
            foreground={"management interface": server.serve_until(stop)},
            background={
                "outbox drain": outbox_drainer(stores, metrics).run(),
                "metrics port": health.serve_until(),
            },
            stop=stop,
        )


def build_services(settings: Settings, stores: Stores) -> Services:
    """The services that operations use. Raises SecretKeyError and CertificatesError."""
    if settings.secret_key is None:
        log.warning("SECRET_KEY is not set: connectors can be neither stored nor shown")
    clock = partial(datetime.now, UTC)
    eraser = device_eraser(settings, stores)
    calls = CallHistoryReader(**stores.redis_options)
    claims = ClaimReader(**stores.redis_options)
    decisions = DecisionStore(most=settings.recent_decisions, **stores.redis_options)
    recent = RecentDetectionStore(**stores.redis_options)
    tails = TailStore(**stores.redis_options)
    egress = EgressGuard(allow_networks=settings.connector_allow_networks)
    return Services(
        database=stores.database,
        sessions=Sessions(
            database=stores.database,
            redis=stores.redis,
            prefix=settings.redis_prefix,
            clock=clock,
        ),
        cipher=cipher_of(settings),
        check_url=egress.check,
        try_connector=connector_trials(settings, stores.database).run,
        past_calls=lambda company: calls.read(company, time.time()),
        device_history=lambda company, udid, campaigns: claims.history(
            DeviceKey(company, udid), campaigns
        ),
        recent_decisions=lambda company, udid: decisions.read(DeviceKey(company, udid)),
        live_decisions=lambda company, after: tails.of_company(company, after, time.time()),
        role_reports=RoleStateStore(**stores.redis_options).read,
        recent_detections=lambda venue: recent.read(venue, time.time()),
        held_data=lambda company, udid: eraser.count(DeviceKey(company, udid)),
        forget_device=lambda company, udid: eraser.erase(DeviceKey(company, udid)),
        day_figures=FigureStore(**stores.redis_options).read,
        max_detection_age=settings.max_detection_age,
        clock=clock,
        max_body=settings.api_max_body,
        catalog_limits=catalog_limits(settings),
    )
