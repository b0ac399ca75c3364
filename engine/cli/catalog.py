"""`proximity catalog load`: a document of companies, venues, beacons and campaigns into SQL."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.plain_text import for_terminal
from engine.cli.errors import CommandError
from engine.cli.invocation import settings_of
from engine.cli.kafka_faults import quiet_logs
from engine.cli.server_urls import refuse_wrong_servers
from engine.process.settings import Settings

if TYPE_CHECKING:
    from catalog.database import Database
    from catalog.load import LoadSummary

_LATER = "running trigger processes will bring it up to date"


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(help="What the engine knows: venues, beacons, campaigns.")
    group.callback(invoke_without_command=False)(_catalog)
    group.command("load")(load)
    app.add_typer(group, name="catalog")


def _catalog() -> None:
    """The catalog in SQL."""


def load(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="One JSON document; - reads standard input.")],
) -> None:
    """Load FILE into the catalog: all of it, or nothing when anything in it is wrong.

    {"companies": [{"name", "accounts", "applications", "connector", "devices", "venues": [...]}]},
    field names as in the interface. Records are found again by name, e-mail, udid and triple, so
    loading twice changes nothing.
    """

    settings = settings_of(context)
    quiet_logs(settings)
    raw = _content(file)
    asyncio.run(_load(settings, str(file), raw))


def _content(file: Path) -> bytes:
    if str(file) == "-":
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from None


async def _load(settings: Settings, name: str, raw: bytes) -> None:
    from sqlalchemy.exc import SQLAlchemyError

    from catalog.database import open_database
    from catalog.errors import DatabaseUrlError
    from catalog.migrate import pending_on

    await refuse_wrong_servers(settings)
    try:
        database = open_database(settings.database_url.get_secret_value())
    except DatabaseUrlError as error:
        raise CommandError(str(error)) from None
    try:
        if await pending_on(database.engine):
            raise CommandError("the database lacks what this version needs; run: proximity migrate")
        summary = await _write(settings, database, name, raw)
    except (SQLAlchemyError, OSError, TimeoutError) as error:
        reason = str(getattr(error, "orig", None) or error) or type(error).__name__
        raise CommandError(f"the database refused: {reason.splitlines()[0]}") from None
    else:
        for line in summary.lines():
            typer.echo(line)
        await _update_index(settings, database)
    finally:
        await database.close()


async def _write(settings: Settings, database: "Database", name: str, raw: bytes) -> "LoadSummary":
    from catalog.errors import SecretKeyError
    from catalog.load import LoadError
    from engine.cli.catalog_loading import write_catalog

    try:
        return await write_catalog(settings, database, raw)
    except SecretKeyError as error:
        raise CommandError(str(error)) from None
    except LoadError as error:
        for fault in error.faults:
            typer.echo(for_terminal(f"{name}: {fault}"), err=True)
        count = len(error.faults)
        faults = "1 fault" if count == 1 else f"{count} faults"
        raise CommandError(f"{name} has {faults}; nothing was changed") from None


async def _update_index(settings: Settings, database: "Database") -> None:
    from catalog.errors import RedisUrlError
    from catalog.index.drainer import OUTAGES
    from engine.cli.catalog_loading import update_index

    try:
        await update_index(settings, database)
    except (RedisUrlError, *OUTAGES) as error:
        what = str(error).partition("\n")[0] or type(error).__name__
        typer.echo(f"the index in Redis is not up to date yet ({what}): {_LATER}", err=True)
    else:
        typer.echo("the index in Redis is up to date")
