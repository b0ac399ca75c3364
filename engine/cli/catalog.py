"""`proximity catalog load`: loads a document of companies, venues and campaigns into SQL."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.plain_text import for_terminal
from engine.cli.errors import CommandError
from engine.cli.examples import examples
from engine.cli.invocation import begin_quietly
from engine.cli.servers import open_migrated_database, redis_reason, refuse_wrong_servers
from engine.process.settings import Settings

if TYPE_CHECKING:
    from catalog.database import Database

_LATER = "running trigger processes will bring it up to date"


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(
        help="The catalog: companies, venues, beacons, campaigns.", no_args_is_help=True
    )
    group.command("load", epilog=examples("catalog load docs/examples/catalog.json"))(load)
    app.add_typer(group, name="catalog")


def load(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="One JSON document; - is standard input.")],
) -> None:
    """Load FILE into the catalog: all of it, or nothing if anything in it is wrong.

    {"companies": [{"name", "accounts", "applications", "connector", "devices", "venues": [...]}]},
    with the interface's field names. Existing records are found by name, e-mail, udid and triple,
    so loading a file twice changes nothing.
    """
    settings = begin_quietly(context)
    asyncio.run(_load(settings, str(file), _content(file)))


def _content(file: Path) -> bytes:
    if str(file) == "-":
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from None


async def _load(settings: Settings, name: str, raw: bytes) -> None:
    from catalog.load import LoadError
    from engine.cli.catalog_loader import write_catalog

    await refuse_wrong_servers(settings)
    async with open_migrated_database(settings) as database:
        try:
            summary = await write_catalog(settings, database, raw)
        except LoadError as error:
            for fault in error.faults:
                typer.echo(for_terminal(f"{name}: {fault}"), err=True)
            count = len(error.faults)
            faults = "1 fault" if count == 1 else f"{count} faults"
            raise CommandError(f"{name} has {faults}; nothing was changed") from None
        for line in summary.lines():
            typer.echo(line)
        await _update_index(settings, database)


async def _update_index(settings: Settings, database: "Database") -> None:
    from catalog.errors import RedisUrlError
    from catalog.index.drainer import OUTAGES
    from engine.cli.catalog_loader import update_index

    try:
        await update_index(settings, database)
    except (RedisUrlError, *OUTAGES) as error:
        reason = redis_reason(settings, error)
        typer.echo(f"the index in Redis is not up to date yet ({reason}): {_LATER}", err=True)
    else:
        typer.echo("the index in Redis is up to date")
