"""`proximity connector test`: one call with a sample detection, shown to a person."""

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.plain_text import for_terminal
from engine.commands import CommandError
from engine.commands.context import settings_of
from engine.commands.reporting import quiet_logs
from engine.settings import Settings

if TYPE_CHECKING:
    from connectors.model import Call

_UDID = "sample-device"


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(help="The web services that companies are asked at.")
    group.callback(invoke_without_command=False)(_connector)
    group.command("test")(call_once)
    app.add_typer(group, name="connector")


def _connector() -> None:
    """Companies' connectors."""


def call_once(
    context: typer.Context,
    company: Annotated[str, typer.Argument(help="The company's name or id.")],
    udid: Annotated[str, typer.Option(help="The device that the service is told.")] = _UDID,
) -> None:
    """Call the connector of COMPANY once, about a sample detection by a test device.

    Shows request and reply, secrets masked, and what the reply would lead to. Nothing is
    published, nothing is tried again, and breakers do not count it.
    """

    settings = settings_of(context)
    quiet_logs(settings)
    asyncio.run(_test(settings, company, udid))


async def _test(settings: Settings, company: str, udid: str) -> None:
    from sqlalchemy.exc import SQLAlchemyError

    from catalog.database import DatabaseUrlError, open_database
    from catalog.secrets import SecretKeyError
    from engine.app.connector import CertificatesError, open_endpoints
    from engine.connecting.sample import SampleError, sample_call

    try:
        database = open_database(settings.database_url.get_secret_value())
        opener = open_endpoints(settings)
    except (DatabaseUrlError, SecretKeyError) as error:
        raise CommandError(str(error)) from None
    try:
        call = await sample_call(database, opener, company, udid)
    except SampleError as error:
        raise CommandError(str(error)) from None
    except (SQLAlchemyError, OSError, TimeoutError) as error:
        reason = str(getattr(error, "orig", None) or error) or type(error).__name__
        raise CommandError(f"the database refused: {reason.splitlines()[0]}") from None
    finally:
        await database.close()
    try:
        await _make(settings, call)
    except CertificatesError as error:
        raise CommandError(str(error)) from None


async def _make(settings: Settings, call: "Call") -> None:
    from connectors.model import CallError
    from connectors.reply import read_reply
    from connectors.request import build_request
    from engine.app.connector import open_caller, user_agent
    from engine.connecting.showing import show_reply, show_request, show_result

    caller = open_caller(settings)
    now = time.time()
    try:
        request = build_request(call, agent=user_agent(), now=now)
        _section("request", show_request(call, agent=user_agent(), now=now))
        begin = time.perf_counter()
        reply = await caller.send(call.company_id, request)
        took = f"reply, after {1000 * (time.perf_counter() - begin):.0f} ms"
        _section(took, show_reply(call, request, reply))
        result = read_reply(reply.status, reply.headers, reply.body, now=time.time())
        _section("result", show_result(result))
    except CallError as error:
        raise CommandError(f"{error.fault.value}: {error.detail}") from None
    except ValueError:
        raise CommandError("the connector's url or parameters make no valid request") from None
    finally:
        await caller.close()


def _section(title: str, lines: Iterable[str]) -> None:
    typer.echo(f"-- {title}")
    for line in lines:
        typer.echo(f"   {for_terminal(line)}".rstrip())
