"""`proximity run`, `proximity api` and `proximity migrate`: the processes of a deployment.

What they need is imported late, so that the parent of several workers stays small.
"""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import structlog
import typer
from typer import Option

from engine.cli.command import command, new_app, settings_of
from engine.process.settings import Settings

if TYPE_CHECKING:
    from engine.process.lifecycle import ParentProcess

log = structlog.get_logger(__name__)


RoleChoice = Literal["trigger", "connector", "recorder", "all"]  # all of them in one process

app = new_app()


@command(
    app,
    "run",
    *("run", "run --role trigger --workers 4", "run --embedded --write-env embedded.env"),
)
async def run(
    context: typer.Context,
    role: Annotated[RoleChoice, Option(help="Which role to run.")] = "all",
    workers: Annotated[int, Option(min=1, max=256, help="Processes under one parent.")] = 1,
    embedded: Annotated[bool, Option("--embedded", help="Start servers on loopback.")] = False,
    write_env: Annotated[Path | None, Option(help="Write their addresses, for --env-file.")] = None,
    worker_of: Annotated[str | None, Option(hidden=True, help="Of the parent.")] = None,
) -> None:
    """Run one role, or all, until SIGTERM or SIGINT; then drain and exit with 0."""
    settings = settings_of(context)
    if embedded and workers > 1:
        raise typer.BadParameter(
            "--embedded runs one worker: its broker's groups hold one member", param_hint="workers"
        )
    if write_env is not None and not embedded:
        raise typer.BadParameter("goes with --embedded", param_hint="write-env")
    if workers > 1:
        from engine.process.workers import supervise

        raise typer.Exit(await supervise(role, workers, settings, context.find_root().obj))

    from engine.process.lifecycle import ParentProcess
    from engine.process.logs import configure_logs
    from engine.wiring.run import ROLES

    configure_logs(settings)
    names = ROLES if role == "all" else (role,)
    if embedded:
        from engine.cli.local_servers import embedded_settings

        async with embedded_settings(settings, write_env) as own:
            await _serve_roles(own, names)
    else:
        parent = None if worker_of is None else ParentProcess.of(worker_of)
        await _serve_roles(settings, names, parent)


async def _serve_roles(
    settings: Settings, names: tuple[str, ...], parent: "ParentProcess | None" = None
) -> None:
    from catalog.redis_connection import probe_redis
    from engine.kafka.topics import Topics, ensure_topics
    from engine.process.lifecycle import stop_on_signals, tune_garbage_collector
    from engine.process.metrics import engine_version
    from engine.process.settings_sources import shown_servers
    from engine.wiring.run import run_roles

    stop = asyncio.Event()
    begin = time.monotonic()
    roles = ",".join(names)
    log.info("starting", version=engine_version(), roles=roles, **shown_servers(settings))

    def started(port: int) -> None:
        log.info("started", roles=roles, metrics=f"{settings.metrics_host}:{port}")

    tune_garbage_collector()
    try:
        with stop_on_signals(stop):
            await probe_redis(settings.redis_url.get_secret_value())
            await ensure_topics(settings, Topics.of(settings).all())
            await run_roles(settings, names, stop, on_started=started, parent=parent)
    finally:
        log.info("stopped", seconds=round(time.monotonic() - begin, 1))


@command(app, "api")
async def api(context: typer.Context) -> None:
    """Serve the management interface until SIGTERM or SIGINT.

    Serves /v2, /docs for people and /openapi.json for programs; /metrics, /healthz and /readyz are
    on API_METRICS_PORT.
    """
    from catalog.redis_connection import probe_redis
    from engine.process.lifecycle import stop_on_signals, tune_garbage_collector
    from engine.process.logs import configure_logs
    from engine.process.metrics import engine_version
    from engine.process.settings_sources import shown_servers
    from engine.wiring.api import serve_api

    settings = settings_of(context)
    configure_logs(settings)
    stop = asyncio.Event()
    log.info("starting", version=engine_version(), **shown_servers(settings))
    tune_garbage_collector()
    with stop_on_signals(stop):
        await probe_redis(settings.redis_url.get_secret_value())
        await serve_api(settings, stop)


@command(app, "migrate")
async def migrate(context: typer.Context) -> None:
    """Create or upgrade the tables in DATABASE_URL. It may run again, and in several processes."""
    from catalog.migrate import migrate as upgrade

    settings = settings_of(context)
    for revision in await upgrade(settings.database_url.get_secret_value()):
        typer.echo(f"applied {revision}")
    typer.echo("the database is up to date")
