"""`proximity connector test`: one call with a sample detection, shown to a person."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.plain_text import for_terminal
from engine.cli.errors import CommandError
from engine.cli.invocation import settings_of
from engine.cli.kafka_faults import quiet_logs
from engine.process.settings import Settings

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

    from catalog.database import open_database
    from catalog.errors import DatabaseUrlError, SecretKeyError
    from connectors.errors import CertificatesError, NothingToTryError
    from engine.connector.trial_call import sample_call
    from engine.wiring.connector import endpoint_decryptor

    try:
        database = open_database(settings.database_url.get_secret_value())
        decryptor = endpoint_decryptor(settings)
    except (DatabaseUrlError, SecretKeyError) as error:
        raise CommandError(str(error)) from None
    try:
        call = await sample_call(database, decryptor, company, udid)
    except NothingToTryError as error:
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
    from engine.connector.call_report import reply_lines, request_lines, result_lines
    from engine.connector.trial_call import make_trial
    from engine.wiring.connector import open_caller, user_agent

    caller = open_caller(settings)
    try:
        trial = await make_trial(caller, call, agent=user_agent())
    finally:
        await caller.close()
    if trial.request is not None:
        _section("request", request_lines(trial.request))
    if trial.reply is not None:
        took = f"reply, after {1000 * (trial.seconds or 0):.0f} ms"
        _section(took, reply_lines(trial.reply))
    if trial.result is None:
        raise CommandError(f"{trial.outcome}: {trial.detail}")
    _section("result", result_lines(trial.result))


def _section(title: str, lines: Iterable[str]) -> None:
    typer.echo(f"-- {title}")
    for line in lines:
        typer.echo(f"   {for_terminal(line)}".rstrip())
