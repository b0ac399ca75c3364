"""`proximity run`, `proximity api` and `proximity migrate`: the processes of a deployment.

What they need is imported late, so that the parent of several workers stays small.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Literal

import structlog
import typer
from typer import Option

from engine import engine_version
from engine.cli.command import ENV_FILE, command, read_settings
from engine.process.settings import Settings

log = structlog.get_logger(__name__)


RoleChoice = Literal["trigger", "connector", "recorder", "all"]  # all of them in one process


@command("run", "run", "run --role trigger --workers 4", "run --embedded --write-env embedded.env")
async def run(
    role: Annotated[RoleChoice, Option(help="Which role to run.")] = "all",
    workers: Annotated[int, Option(min=1, max=256, help="Processes under one parent.")] = 1,
    embedded: Annotated[bool, Option("--embedded", help="Start servers on loopback.")] = False,
    write_env: Annotated[Path | None, Option(help="Write their addresses, for --env-file.")] = None,
    worker_of: Annotated[str | None, Option(hidden=True, help="Of the parent.")] = None,
) -> None:
    """Run one role, or all, until SIGTERM or SIGINT; then drain and exit with 0."""
    settings = read_settings()
    if embedded and workers > 1:
        raise typer.BadParameter(
            "--embedded runs one worker: its broker's groups hold one member", param_hint="workers"
        )
    if write_env is not None and not embedded:
        raise typer.BadParameter("goes with --embedded", param_hint="write-env")
    if workers > 1:
        from engine.process.workers import supervise

        raise typer.Exit(await supervise(role, workers, settings, ENV_FILE.get()))

    from engine.process.lifecycle import ParentProcess
    from engine.process.logs import configure_logs
    from engine.wiring.run import ROLES, run_roles

    configure_logs(settings)
    names = ROLES if role == "all" else (role,)
    parent = None if worker_of is None else ParentProcess.of(worker_of)

    async def serve(settings: Settings, stop: asyncio.Event) -> None:
        from engine.kafka.topics import all_topics, ensure_topics

        await ensure_topics(settings, all_topics(settings))
        await run_roles(settings, names, stop, parent=parent)

    async with AsyncExitStack() as stack:
        if embedded:
            from engine.cli import local_servers

            servers = local_servers.embedded_settings(settings)
            settings = await stack.enter_async_context(servers)
            if write_env is not None:
                local_servers.write_env(write_env, settings)
        await _serve(settings, serve, roles=",".join(names))


@command("api")
async def api() -> None:
    """Serve the management interface until SIGTERM or SIGINT.

    Serves /v2, the console, /docs for people and /openapi.json for programs; metrics, /healthz and
    /readyz are on API_METRICS_PORT.
    """
    from engine.process.logs import configure_logs
    from engine.wiring.api import serve_api

    settings = read_settings()
    configure_logs(settings)
    await _serve(settings, serve_api)


async def _serve(
    settings: Settings,
    serve: Callable[[Settings, asyncio.Event], Awaitable[None]],
    **shown: str,
) -> None:
    """Serve until SIGTERM or SIGINT sets the event."""
    from catalog.redis_connection import probe_redis
    from engine.process.lifecycle import cancel, stop_on_signals
    from engine.process.settings_sources import shown_servers

    stop = asyncio.Event()
    begin = time.monotonic()
    log.info("starting", version=engine_version(), **shown, **shown_servers(settings))
    try:
        with stop_on_signals(stop):
            await probe_redis(settings.redis_url.get_secret_value())
            await serve(settings, stop)
    finally:
        # What a client left running, too: asyncio.run cancels it only once and then waits for its
        # end, and Python 3.11's wait_for may swallow that.
        await cancel(asyncio.all_tasks() - {asyncio.current_task()})
        log.info("stopped", seconds=round(time.monotonic() - begin, 1))


@command("migrate")
async def migrate() -> None:
    """Create or upgrade the tables in DATABASE_URL. It may run again, and in several processes."""
    from catalog.migrate import migrate as upgrade

    settings = read_settings()
    for revision in await upgrade(settings.database_url.get_secret_value()):
        typer.echo(f"applied {revision}")
    typer.echo("the database is up to date")
