"""`proximity connector`: tests a connector with one call, and renews the encryption key."""

import asyncio
from collections.abc import Iterable
from typing import Annotated

import typer

from catalog.plain_text import for_terminal
from catalog.secrets import MISSING_SECRET_KEY, RekeyResult, open_cipher, rekey_connectors
from connectors.model import Call
from engine.cli.command import CommandError, begin_quietly, examples, new_app
from engine.cli.servers import open_migrated_database
from engine.connector.trial_call import (
    make_trial,
    reply_lines,
    request_lines,
    result_lines,
    sample_call,
)
from engine.process.settings import Settings
from engine.wiring.connector import endpoint_decryptor, open_caller, user_agent

_MOST_NAMES = 10
_UDID = "sample-device"


app = new_app()
group = typer.Typer(
    help="Customers' web services, which provide the content of connector campaigns.",
    no_args_is_help=True,
)
app.add_typer(group, name="connector")


@group.command("test", epilog=examples('connector test "Harbour Mall"'))
def call_once(
    context: typer.Context,
    company: Annotated[str, typer.Argument(help="The company's name or id.")],
    udid: Annotated[str, typer.Option(help="The udid of the sample device.")] = _UDID,
) -> None:
    """Call the connector of COMPANY once, about a sample detection by a test device.

    Shows request and reply with masked secrets, and the notification that would follow. Nothing is
    published, the call is not retried, and breakers do not count it.
    """
    asyncio.run(_test(begin_quietly(context), company, udid))


@group.command("rekey")
def rekey(context: typer.Context) -> None:
    """Encrypt the parameters and secrets of all connectors with the first key of SECRET_KEY.

    The other keys are then needed only for waiting calls, and for dead letters of calls. It is
    safe to run this again, and while the roles run.
    """
    result = asyncio.run(_rekey(begin_quietly(context)))
    typer.echo(f"{result.renewed:,} connectors encrypted anew, {result.current:,} were already")
    if result.unreadable:
        names = ", ".join(map(for_terminal, result.unreadable[:_MOST_NAMES]))
        more = ", ..." if len(result.unreadable) > _MOST_NAMES else ""
        raise CommandError(
            f"{len(result.unreadable):,} connectors are encrypted with none of the keys of "
            f"PROXIMITY_SECRET_KEY; their companies: {names}{more}"
        )


async def _rekey(settings: Settings) -> RekeyResult:
    if settings.secret_key is None:
        raise CommandError(MISSING_SECRET_KEY)
    cipher = open_cipher(settings.secret_key.get_secret_value())
    async with open_migrated_database(settings) as database:
        return await rekey_connectors(database, cipher)


async def _test(settings: Settings, company: str, udid: str) -> None:
    decryptor = endpoint_decryptor(settings)
    async with open_migrated_database(settings) as database:
        call = await sample_call(database, decryptor, company, udid)
    await _show_trial(settings, call)


async def _show_trial(settings: Settings, call: Call) -> None:
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
