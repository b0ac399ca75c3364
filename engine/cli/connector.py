"""`proximity connector test`: one call with a sample detection, shown to a person."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.plain_text import for_terminal
from engine.cli.errors import CommandError
from engine.cli.examples import examples
from engine.cli.invocation import begin_quietly
from engine.cli.servers import open_migrated_database
from engine.process.settings import Settings

if TYPE_CHECKING:
    from connectors.model import Call

_UDID = "sample-device"


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(help="The web services that companies are asked at.", no_args_is_help=True)
    group.command("test", epilog=examples('connector test "Harbour Mall"'))(call_once)
    app.add_typer(group, name="connector")


def call_once(
    context: typer.Context,
    company: Annotated[str, typer.Argument(help="The company's name or id.")],
    udid: Annotated[str, typer.Option(help="The device that the service is told.")] = _UDID,
) -> None:
    """Call the connector of COMPANY once, about a sample detection by a test device.

    Shows request and reply, secrets masked, and what the reply would lead to. Nothing is
    published, nothing is tried again, and breakers do not count it.
    """
    asyncio.run(_test(begin_quietly(context), company, udid))


async def _test(settings: Settings, company: str, udid: str) -> None:
    from engine.connector.trial_call import sample_call
    from engine.wiring.connector import endpoint_decryptor

    decryptor = endpoint_decryptor(settings)
    async with open_migrated_database(settings) as database:
        call = await sample_call(database, decryptor, company, udid)
    await _show_trial(settings, call)


async def _show_trial(settings: Settings, call: "Call") -> None:
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
