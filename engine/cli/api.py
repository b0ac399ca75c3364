"""`proximity api`: serves the management interface."""

import asyncio

import structlog
import typer

from engine.cli.errors import CommandError
from engine.cli.invocation import settings_of
from engine.cli.servers import refuse_wrong_servers, sql_reason, url_faults
from engine.process.settings import Settings

log = structlog.get_logger(__name__)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("api")(api)


def api(context: typer.Context) -> None:
    """Serve the management interface until SIGTERM or SIGINT; then finish requests, exit with 0.

    Serves /v2, /docs for people, /openapi.json for programs, /healthz and /readyz; metrics are on
    API_METRICS_PORT.
    """
    from engine.process.logs import configure_logs

    settings = settings_of(context)
    configure_logs(settings)
    asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    from sqlalchemy.exc import SQLAlchemyError

    from engine.process.lifecycle import stop_on_signals, tune_garbage_collector
    from engine.process.metrics import engine_version
    from engine.process.settings_display import shown_servers
    from engine.wiring.api import serve_api

    stop = asyncio.Event()
    log.info("starting", version=engine_version(), **shown_servers(settings))
    tune_garbage_collector()
    try:
        with url_faults(), stop_on_signals(stop):
            await refuse_wrong_servers(settings)
            await serve_api(settings, stop)
    except SQLAlchemyError as error:
        raise CommandError(f"the database refused: {sql_reason(settings, error)}") from error
