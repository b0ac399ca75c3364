"""`proximity index rebuild`: builds the index in Redis again from SQL."""

import asyncio
from typing import TYPE_CHECKING

import typer

from engine.cli.errors import CommandError
from engine.cli.invocation import begin_quietly
from engine.cli.servers import reason_of, redis_reason, refuse_wrong_servers, sql_reason
from engine.process.settings import Settings

if TYPE_CHECKING:
    from catalog.index.drain import IndexCounts

_UNCHANGED = "the index is as it was"


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(
        help="The index in Redis, from which triggers read the catalog.", no_args_is_help=True
    )
    group.command("rebuild")(rebuild)
    app.add_typer(group, name="index")


def rebuild(context: typer.Context) -> None:
    """Build the whole index in Redis again from SQL, and notify running triggers.

    This is not needed in daily work: every process compares the index with SQL each second, and a
    missing or older index is rebuilt by itself. Triggers use the old index until the new one is
    complete; Redis holds both meanwhile. It is safe to run this at any time, and beside other
    writers: it waits up to half a minute for its turn.
    """
    built = asyncio.run(_rebuild(begin_quietly(context)))
    typer.echo(
        f"the index is built: {built.beacons} beacons, {built.campaigns} campaigns, "
        f"{built.connectors} connectors"
    )


async def _rebuild(settings: Settings) -> "IndexCounts":
    from asyncpg import InterfaceError, PostgresError
    from redis.exceptions import RedisError
    from sqlalchemy.exc import SQLAlchemyError

    from catalog.errors import IndexMissingError, StaleWriterError
    from catalog.index.drain import rebuild as build_again
    from catalog.migrate import pending_on
    from engine.wiring.stores import open_stores

    await refuse_wrong_servers(settings)
    try:
        async with open_stores(settings) as stores:
            await stores.redis_answers()
            if await pending_on(stores.database.engine):
                raise CommandError(
                    "the database lacks what this version needs; run: proximity migrate"
                )
            return await build_again(stores.database, stores.index_store)
    except RedisError as error:
        reason = redis_reason(settings, error)
        raise CommandError(f"Redis does not serve: {reason}; {_UNCHANGED}") from None
    except TimeoutError as error:  # an OSError too, so it comes first
        raise CommandError(
            f"SQL or Redis took too long: {reason_of(error)}; {_UNCHANGED}"
        ) from None
    except (SQLAlchemyError, PostgresError, InterfaceError, OSError) as error:
        reason = sql_reason(settings, error)
        raise CommandError(f"the database refused: {reason}; {_UNCHANGED}") from None
    except (IndexMissingError, StaleWriterError) as error:
        raise CommandError(f"the index was lost while it was built: {error}; try again") from None
