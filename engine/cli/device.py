"""`proximity device`: shows the decisions on one device's last detections."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from catalog.plain_text import for_terminal
from engine.cli.errors import CommandError
from engine.cli.examples import examples
from engine.cli.invocation import begin_quietly
from engine.cli.servers import reason_of, redis_reason, refuse_wrong_servers, sql_reason
from engine.process.settings import Settings

if TYPE_CHECKING:
    from engine.wiring.stores import Stores


class _Found(NamedTuple):
    """The company's name, the device's id if SQL has it, and its last decisions."""

    company: str
    device_id: int | None
    decisions: list[dict[str, Any]]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("device", epilog=examples('device "Harbour Mall" device-1'))(device)


def device(
    context: typer.Context,
    company: Annotated[str, typer.Argument(help="The company's name or id.")],
    udid: Annotated[str, typer.Argument(help="The device.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show the decisions on the last detections of the device UDID of COMPANY, the newest first.

    Each decision has its reason, and each campaign its own. Triggers keep the last
    RECENT_DECISIONS of them for a day. Exact repeats are left out, and under high load others too.
    """
    from engine.cli.tables import echo_json

    settings = begin_quietly(context)
    found = asyncio.run(_read(settings, company, udid))
    if as_json:
        for decision in found.decisions:
            echo_json(decision)
        return
    for line in _lines(settings, found, udid):
        typer.echo(for_terminal(line))


async def _read(settings: Settings, company: str, udid: str) -> _Found:
    from redis.exceptions import RedisError
    from sqlalchemy.exc import SQLAlchemyError

    from catalog.errors import DatabaseUrlError, RedisUrlError
    from engine.wiring.stores import open_stores

    await refuse_wrong_servers(settings)
    try:
        async with open_stores(settings) as stores:
            return await _find(settings, stores, company, udid)
    except (RedisUrlError, DatabaseUrlError) as error:
        raise CommandError(str(error)) from None
    except SQLAlchemyError as error:
        raise CommandError(f"the database refused: {sql_reason(settings, error)}") from None
    except RedisError as error:
        raise CommandError(f"Redis does not serve: {redis_reason(settings, error)}") from None
    except (OSError, TimeoutError) as error:
        raise CommandError(f"Redis or the database does not serve: {reason_of(error)}") from None


async def _find(settings: Settings, stores: "Stores", company: str, udid: str) -> _Found:
    from sqlalchemy import select

    from api.records.decision import shown_decisions
    from catalog.company_lookup import find_company
    from catalog.migrate import pending_on
    from catalog.models import Device
    from engine.redis.devices import DeviceKey
    from engine.wiring.explain import build_decision_store

    if await pending_on(stores.database.engine):
        raise CommandError("the database lacks what this version needs; run: proximity migrate")
    async with stores.database.read() as session:
        owner = await find_company(session, company)
        if owner is None:
            raise CommandError(f"there is no company {company!r}")
        query = select(Device.id).where(Device.company_id == owner.id, Device.udid == udid)
        device_id = await session.scalar(query)
        store = build_decision_store(settings, stores.redis)
        kept = await store.read(DeviceKey(owner.id, udid))
        shown = await shown_decisions(session, owner.id, kept)
    return _Found(owner.name, device_id, shown)


def _lines(settings: Settings, found: _Found, udid: str) -> Iterator[str]:
    known = "not recorded yet" if found.device_id is None else f"device {found.device_id}"
    yield f"{udid} at {found.company}, {known}"
    if not found.decisions:
        off = " (RECENT_DECISIONS is 0 here)" if not settings.recent_decisions else ""
        yield f"nothing is kept of the last day{off}"
    for each in found.decisions:
        place = f"{each['beacon']['name'] or each['beacon']['id']}, {each['lieu'] or 'deleted'}"
        yield f"{each['detected_at']}  {each['reason']}  {each['proximity']} at {place}"
        for campaign in each["campaigns"]:
            name = campaign["name"] or "deleted"
            yield f"    {campaign['outcome']:13}  {campaign['id']:>6}  {name}"
