"""`proximity forget`: deletes the data of one device from SQL and Redis."""

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from catalog.plain_text import for_terminal
from engine.cli.errors import CommandError
from engine.cli.examples import examples
from engine.cli.invocation import begin_quietly
from engine.cli.servers import redis_reason, refuse_wrong_servers, sql_reason
from engine.process.settings import Settings

if TYPE_CHECKING:
    from catalog.erasure import DeviceData, TopicRetention
    from engine.wiring.stores import Stores


class _Found(NamedTuple):
    company: str
    data: "DeviceData"


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
    rows, keys = found.data.rows, found.data.keys
    typer.echo(
        f"{'deleted' if yes else 'would delete'}, of {for_terminal(found.company)}: "
        f"devices {rows.devices}, detections {rows.detections}, authentications "
        f"{rows.authentications}, presences {rows.presences}, keys in Redis {keys}"
    )
    until = _until(found.data.kafka)
    typer.echo(f"Kafka keeps its messages until retention: {settings.topic_prefix}*, {until}")
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
            return await _in_both(stores, settings, company, udid, delete=delete)
    except (RedisUrlError, DatabaseUrlError) as error:
        raise CommandError(str(error)) from None
    except RedisError as error:
        reason = redis_reason(settings, error)
        raise CommandError(f"Redis does not serve: {reason}; run it again") from None
    except (SQLAlchemyError, OSError, TimeoutError) as error:
        raise CommandError(f"the database refused: {sql_reason(settings, error)}") from None


async def _in_both(
    stores: "Stores", settings: Settings, name_or_id: str, udid: str, *, delete: bool
) -> _Found:
    from catalog.company_lookup import find_company
    from engine.redis.devices import DeviceKey
    from engine.wiring.stores import device_eraser

    async with stores.database.read() as session:
        company = await find_company(session, name_or_id)
    if company is None:
        raise CommandError(f"there is no company {name_or_id!r}")
    eraser = device_eraser(settings, stores)
    data = await (eraser.erase if delete else eraser.count)(DeviceKey(company.id, udid))
    return _Found(company.name, data)


def _until(kafka: "TopicRetention") -> str:
    if not kafka.is_known:
        return "which no broker reports"
    if kafka.longest is None:
        return "which one of them does not have"
    return f"{(datetime.now(UTC) + kafka.longest):%Y-%m-%d %H:%M} UTC at the latest"
