"""`proximity catalog load` and `proximity index rebuild`: they write the catalog and its index."""

import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from catalog.database import Database
from catalog.index.drain import rebuild as build_again
from catalog.load import LoadError, LoadSummary, load_document
from connectors.egress import EgressGuard
from engine.cli.command import begin_quietly, command
from engine.cli.output import refused_file, say
from engine.cli.servers import open_migrated_database, open_migrated_stores
from engine.process.settings import Settings
from engine.wiring.parts import catalog_limits, cipher_of


@command("catalog load", "catalog load docs/examples/catalog.json")
def load(
    file: Annotated[Path, Argument(help="One JSON document; - is standard input.")],
) -> Coroutine[Any, Any, None]:
    """Load FILE into the catalog: all of it, or nothing if anything in it is wrong.

    {"companies": [{"name", "accounts", "applications", "connector", "devices", "venues": [...]}]},
    with the interface's field names. Existing records are found by name, e-mail, udid and triple,
    so loading a file twice changes nothing. Running processes write the changes to the index in
    Redis within a second; else the next one that starts does.
    """
    settings = begin_quietly()
    raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    return _load(settings, str(file), raw)


async def _load(settings: Settings, name: str, raw: bytes) -> None:
    async with open_migrated_database(settings) as database:
        try:
            summary = await write_catalog(settings, database, raw)
        except LoadError as error:
            faults = [f"{name}: {each}" for each in error.faults]
            raise refused_file(name, faults, "nothing was changed") from None
    for kind, count in summary.items():
        outcomes = (f"{count[each]} {each}" for each in ("created", "updated", "unchanged"))
        say(f"{kind}: {', '.join(outcomes)}")


async def write_catalog(settings: Settings, database: Database, raw: bytes) -> LoadSummary:
    """Load the document `raw`.

    Raises SecretKeyError, LoadError, SQLAlchemyError or OSError; then nothing has changed.
    """
    egress = EgressGuard(allow_networks=settings.connector_allow_networks)
    return await load_document(
        database.write,
        raw,
        cipher_of(settings),
        limits=catalog_limits(settings),
        check_url=egress.check,
    )


@command("index rebuild")
async def rebuild() -> None:
    """Build the whole index in Redis again from SQL, and notify running triggers.

    This is not needed in daily work: every process compares the index with SQL all the time, and a
    missing or older index is rebuilt by itself. Triggers use the old index until the new one is
    complete; Redis holds both meanwhile. It is safe to run this at any time, and beside other
    writers: it waits up to half a minute for its turn.
    """
    settings = begin_quietly()
    async with open_migrated_stores(settings) as stores:
        built = await build_again(stores.database, stores.index_store)
    kinds = ("beacons", "geofences", "tags", "campaigns", "connectors")
    say(f"the index is built: {', '.join(f'{built[kind]} {kind}' for kind in kinds)}")
