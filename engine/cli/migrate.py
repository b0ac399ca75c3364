"""`proximity migrate`: upgrades the SQL schema."""

import asyncio

import typer

from engine.cli.errors import CommandError
from engine.cli.invocation import settings_of
from engine.cli.servers import sql_reason


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("migrate")(migrate)


def migrate(context: typer.Context) -> None:
    """Create or upgrade the tables in DATABASE_URL. It may run again, and in several processes."""
    from sqlalchemy.exc import SQLAlchemyError

    from catalog.migrate import migrate as upgrade

    settings = settings_of(context)
    try:
        applied = asyncio.run(upgrade(settings.database_url.get_secret_value()))
    except (SQLAlchemyError, ValueError, OSError) as error:
        raise CommandError(f"cannot migrate the database: {sql_reason(settings, error)}") from None
    for revision in applied:
        typer.echo(f"applied {revision}")
    typer.echo("the database is up to date")
