"""The management interface as a process: opens what it needs, serves, closes."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime
from functools import partial

import structlog
from fastapi import FastAPI

from api.app import build_app
from api.metrics import ApiMetrics
from api.services import Limits, Services
from api.sessions.attempts import LoginAllowance, LoginAttempts, PasswordGate
from api.sessions.check import Sessions
from api.sessions.revision import AccessRevision
from api.sessions.sign_in import PASSWORD_WORKERS, Passwords, SignIn
from api.slots import FairSlots
from catalog.index.drainer import OutboxDrainer
from catalog.secrets import open_cipher
from connectors.egress import EgressGuard
from connectors.reports import CallHistory
from engine.connector.call_history import read_call_history
from engine.connector.trial_call import company_trials
from engine.process.health import HealthServer, ServerProbe
from engine.process.http_limits import HttpLimits
from engine.process.http_server import BoundedServer, listen
from engine.process.lifecycle import run_services
from engine.process.metrics import Metrics, engine_version
from engine.process.settings import PREFIX, Settings
from engine.redis.claim_reader import ClaimReader
from engine.redis.company_watch import CompanyWatch
from engine.redis.decision_store import DecisionStore
from engine.redis.devices import DeviceKey
from engine.redis.recent_detections import RecentDetectionStore
from engine.redis.tail_store import TailStore
from engine.wiring.connector import endpoint_decryptor, open_caller, user_agent
from engine.wiring.explain import build_claim_reader, build_decision_store
from engine.wiring.figures import build_figure_store
from engine.wiring.role_state import role_state_store
from engine.wiring.server_watch import sql_probe
from engine.wiring.stores import (
    Stores,
    catalog_limits,
    device_eraser,
    open_stores,
    refuse_old_schema,
)
from rules.explanation import HeldClaim
from rules.stored_decision import StoredDecision

log = structlog.get_logger(__name__)

Ready = Callable[[], Awaitable[Mapping[str, bool]]]


class ApiServer(BoundedServer):
    """Serves one application until it is stopped.

    Opens its port at once, to find out whether it is in use. Raises PortInUseError.
    """

    def __init__(self, app: FastAPI, settings: Settings) -> None:
        self._socket = listen(settings.api_host, settings.api_port, setting=f"{PREFIX}API_PORT")
        self.port: int = self._socket.getsockname()[1]
        super().__init__(
            app,
            _http_limits(settings),
            proxy_headers=bool(settings.api_trusted_proxies),
            forwarded_allow_ips=[str(network) for network in settings.api_trusted_proxies],
            timeout_graceful_shutdown=int(settings.drain_timeout) or 1,
        )

    async def serve_until(self, stop: asyncio.Event) -> None:
        """Serve; at `stop` finish the requests in flight within DRAIN_TIMEOUT."""
        serving = asyncio.create_task(self.serve(sockets=[self._socket]))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        self.should_exit = True
        stopping.cancel()
        await serving


async def serve_api(
    settings: Settings,
    stop: asyncio.Event,
    *,
    on_started: Callable[[int, int], None] | None = None,
) -> None:
    """Serve until `stop` is set. Raises the error that stops it earlier.

    `on_started` is called with the port and the metrics port once both are open.
    """
    metrics = Metrics()
    passwords = Passwords()
    async with open_stores(settings) as stores, contextlib.AsyncExitStack() as stack:
        stack.callback(passwords.close)
        await refuse_old_schema(stores)
        drainer = OutboxDrainer(
            database=stores.database,
            store=stores.index_store,
            clock=time.monotonic,
            on_lag=metrics.index_lag.set,
        )
        revision = AccessRevision(database=stores.database, clock=time.monotonic)
        services = build_services(settings, stores, drainer, revision, passwords)
        ready = partial(_ready, sql_probe(stores, metrics), stop)
        app = build_app(
            services=services,
            metrics=ApiMetrics(metrics.registry),
            version=engine_version(),
            ready=ready,
            cors_origins=settings.api_cors_origins,
            with_console=settings.console,
        )
        server = ApiServer(app, settings)
        health = _health(settings, metrics, ready)
        log.info("serving", host=settings.api_host, port=server.port, metrics_port=health.port)
        if on_started is not None:
            on_started(server.port, health.port)
        await run_services(
            foreground={"management interface": server.serve_until(stop)},
            background={
                "outbox drain": drainer.run(asyncio.Event()),
                "access revision": revision.run(),
                "metrics port": health.run(),
            },
            stop=stop,
        )


def build_services(
    settings: Settings,
    stores: Stores,
    drainer: OutboxDrainer,
    revision: AccessRevision,
    passwords: Passwords,
) -> Services:
    """The services that operations use. Raises SecretKeyError and CertificatesError."""
    key = settings.secret_key
    if key is None:
        log.warning("SECRET_KEY is not set: connectors can be neither stored nor shown")
    clock = partial(datetime.now, UTC)
    allowance = LoginAllowance(
        failures=settings.login_attempts_account,
        window=settings.login_window,
    )
    attempts = LoginAttempts(
        redis=stores.redis, prefix=settings.redis_prefix, allowance=allowance, clock=time.monotonic
    )
    eraser = device_eraser(settings, stores)
    return Services(
        database=stores.database,
        sessions=Sessions(database=stores.database, revision=revision, clock=clock),
        sign_in=SignIn(
            database=stores.database,
            gate=PasswordGate(slots=FairSlots(at_once=PASSWORD_WORKERS), attempts=attempts),
            passwords=passwords,
            clock=clock,
        ),
        cipher=None if key is None else open_cipher(key.get_secret_value()),
        nudge=drainer.nudge,
        check_url=_egress(settings).check,
        try_connector=company_trials(
            stores.database, endpoint_decryptor(settings), open_caller(settings), agent=user_agent()
        ),
        past_calls=partial(_past_calls, stores, settings),
        newest_claims=partial(_newest_claims, build_claim_reader(settings, stores.redis)),
        recent_decisions=partial(_decisions, build_decision_store(settings, stores.redis)),
        live_decisions=_company_watch(settings, stores).decisions,
        role_reports=role_state_store(settings, stores).read,
        recent_detections=partial(_recent_detections, stores, settings),
        held_data=lambda company, udid: eraser.count(DeviceKey(company, udid)),
        forget_device=lambda company, udid: eraser.erase(DeviceKey(company, udid)),
        day_figures=build_figure_store(settings, stores.redis).read,
        max_detection_age=settings.max_detection_age,
        clock=clock,
        limits=Limits(
            body_bytes=settings.api_max_body,
            body_seconds=settings.api_body_timeout,
            answer_seconds=settings.api_answer_timeout,
            whole_answer_seconds=settings.api_list_timeout,
        ),
        catalog_limits=catalog_limits(settings),
    )


async def _past_calls(stores: Stores, settings: Settings, company_id: int) -> CallHistory:
    return await read_call_history(
        stores.redis,
        settings.redis_prefix,
        company_id,
        now=time.time(),
        deadline=settings.redis_timeout,
    )


async def _newest_claims(
    reader: ClaimReader, company_id: int, udid: str, campaign_ids: Collection[int]
) -> dict[int, HeldClaim]:
    return await reader.newest(DeviceKey(company_id, udid), campaign_ids)


async def _decisions(store: DecisionStore, company_id: int, udid: str) -> list[StoredDecision]:
    return await store.read(DeviceKey(company_id, udid))


async def _recent_detections(stores: Stores, settings: Settings, venue_id: int) -> dict[int, int]:
    store = RecentDetectionStore(
        redis=stores.redis, prefix=settings.redis_prefix, deadline=settings.redis_timeout
    )
    return await store.read(venue_id, time.time())


def _company_watch(settings: Settings, stores: Stores) -> CompanyWatch:
    store = TailStore(
        redis=stores.redis, prefix=settings.redis_prefix, deadline=settings.redis_timeout
    )
    return CompanyWatch(store)


def _egress(settings: Settings) -> EgressGuard:
    """One guard for the process, which bounds the number of concurrent name look-ups.

    It has threads of its own, so that slow look-ups do not delay those of SQL and Redis.
    """
    return EgressGuard(
        allow_networks=settings.connector_allow_networks,
        deadline=settings.connector_connect_timeout,
    )


def _http_limits(settings: Settings) -> HttpLimits:
    return HttpLimits(
        # A chunk of one byte takes six bytes.
        message_bytes=8 * settings.api_max_body,
        connections=settings.api_connections,
        head_seconds=settings.api_head_timeout,
        idle_seconds=settings.api_idle_timeout,
        stall_seconds=settings.api_answer_timeout,
    )


def _health(settings: Settings, metrics: Metrics, ready: Ready) -> HealthServer:
    async def is_ready() -> bool:
        return all((await ready()).values())

    return HealthServer(
        registry=metrics.registry,
        checks={"serving": is_ready},
        host=settings.api_metrics_host,
        port=settings.api_metrics_port,
    )


async def _ready(sql: ServerProbe, stop: asyncio.Event) -> Mapping[str, bool]:
    return {"running": not stop.is_set(), "database": await sql.answers()}
