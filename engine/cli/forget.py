"""`proximity forget`: deletes the data of one device from SQL and Redis."""

import asyncio
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from catalog.plain_text import for_terminal
from engine.cli.errors import CommandError
from engine.cli.examples import examples
from engine.cli.invocation import begin_quietly
from engine.cli.servers import redis_reason, refuse_wrong_servers, sql_reason
from engine.process.settings import Settings

if TYPE_CHECKING:
    from catalog.forgetting import DeviceRows
    from engine.wiring.stores import Stores


class _Found(NamedTuple):
    company: str
    rows: "DeviceRows"
    keys: int


def register(app: typer.Typer) -> None:
    """Add the command."""
    lines = ('forget "Harbour Mall" device-1', 'forget "Harbour Mall" device-1 --yes')
    app.command("forget", epilog=examples(*lines))(forget)


def forget(
    context: typer.Context,
    company: Annotated[str, typer.Argument(help="The company's name or id.")],
    udid: Annotated[str, typer.Argument(help="The device.")],
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete; without it, only show what would be deleted.")
    ] = False,
) -> None:
    """Delete all data of the device UDID of COMPANY, one person's data, from SQL and Redis.

    Daily statistics stay, because they name no device. Kafka keeps the messages until each topic's
    retention ends. A later detection creates the device again. It is safe to run this again.
    """
    settings = begin_quietly(context)
    found = asyncio.run(_forget(settings, company, udid, delete=yes))
    rows = found.rows
    typer.echo(
        f"{'deleted' if yes else 'would delete'}, of {for_terminal(found.company)}: "
        f"devices {rows.devices}, detections {rows.detections}, authentications "
        f"{rows.authentications}, presences {rows.presences}, keys in Redis {found.keys}"
    )
    typer.echo(f"Kafka keeps its messages until retention: {settings.topic_prefix}*")
    if not yes:
        typer.echo("nothing is deleted yet: add --yes")


async def _forget(settings: Settings, company: str, udid: str, *, delete: bool) -> _Found:
    from redis.exceptions import RedisError
    from sqlalchemy.exc import SQLAlchemyError

    from catalog.errors import DatabaseUrlError, RedisUrlError
    from engine.wiring.stores import open_stores

    await refuse_wrong_servers(settings)
    try:
        async with open_stores(settings) as stores:
            # Checked before anything is deleted, so that no half of the work has to be repeated.
            await stores.redis_answers()
            return await _in_both(stores, settings, company, udid, delete=delete)
    except (RedisUrlError, DatabaseUrlError) as error:
        raise CommandError(str(error)) from None
    except RedisError as error:
        why = redis_reason(settings, error)
        raise CommandError(f"Redis does not serve: {why}; run it again") from None
    except (SQLAlchemyError, OSError, TimeoutError) as error:
        raise CommandError(f"the database refused: {sql_reason(settings, error)}") from None


async def _in_both(
    stores: "Stores", settings: Settings, wanted: str, udid: str, *, delete: bool
) -> _Found:
    """Delete in SQL first, because the device record in Redis is a copy of SQL's."""
    from catalog.company_lookup import find_company
    from catalog.forgetting import campaign_ids, count_device, forget_device
    from engine.redis.devices import DeviceKey
    from engine.redis.forgetting import forget_in_redis

    async with stores.database.write.begin() as session:
        company = await find_company(session, wanted)
        if company is None:
            raise CommandError(f"there is no company {wanted!r}")
        campaigns = await campaign_ids(session, company.id)
        key, name = DeviceKey(company.id, udid), company.name
        rows = await (forget_device if delete else count_device)(session, *key)
    keys = await forget_in_redis(
        stores.redis, settings.redis_prefix, key, campaigns, only_count=not delete
    )
    return _Found(name, rows, keys)
