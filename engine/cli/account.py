"""`proximity account`: who may use the management interface, and for what."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from catalog.plain_text import for_terminal
from engine.cli.invocation import begin_quietly
from engine.cli.servers import open_migrated_database
from engine.cli.tables import echo_json
from engine.process.settings import Settings

if TYPE_CHECKING:
    from catalog.database import Database

T = TypeVar("T")
Email = Annotated[str, typer.Argument(help="The account's e-mail address.")]
FromStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input.")
]
Levels = Annotated[
    list[str] | None,
    typer.Option(
        "--permission",
        metavar="[AREA=]LEVEL",
        help="0 nothing, 1 read, 2 read and write; without an area for all. May be repeated.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(help="Who may use the management interface, and for what.")
    for command in (create, password, permissions, disable, enable):
        group.command(command.__name__)(command)
    group.command("list")(list_)
    app.add_typer(group, name="account")


def create(
    context: typer.Context,
    email: Email,
    company: Annotated[str, typer.Option(help="The name of the company.")],
    create_company: Annotated[
        bool, typer.Option("--create-company", help="Make the company if it is not there.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="The person's name.")] = None,
    fonction: Annotated[str | None, typer.Option(help="The person's job title.")] = None,
    permission: Levels = None,
    password_stdin: FromStdin = False,
) -> None:
    """Make an account. Without --permission it may do everything."""
    from catalog.accounts import NewAccount, create_account
    from catalog.fields.company import AccountFields, CompanyFields

    values = _checked(AccountFields, email=email, **_given(name=name, fonction=fonction))
    owner = _checked(CompanyFields, name=company)["name"]
    levels = _levels(permission or ["2"])
    new = NewAccount(**values, company=owner, password=_password(password_stdin), permission=levels)
    now = datetime.now(UTC)
    _run(context, lambda db: create_account(db, new, create_company=create_company, now=now))
    typer.echo(f"{new.email} can sign in for {owner}")


def password(context: typer.Context, email: Email, password_stdin: FromStdin = False) -> None:
    """Change the password. The account's sessions end at once."""
    from catalog.accounts import set_password

    address, chosen = _email(email), _password(password_stdin)
    _run(context, lambda database: set_password(database, address, chosen))
    typer.echo(f"{address} has a new password; its sessions have ended")


def permissions(context: typer.Context, email: Email, permission: Levels = None) -> None:
    """Change levels; areas that are not named stay. Without --permission show them."""
    from catalog.accounts import set_permissions

    address, levels = _email(email), _levels(permission or [])
    current = _run(context, lambda database: set_permissions(database, address, levels))
    for area, level in current.items():
        typer.echo(f"{area} {level}")


def disable(context: typer.Context, email: Email) -> None:
    """Let the account sign in no more. Its sessions stop at once."""
    _set_active(context, email, active=False)


def enable(context: typer.Context, email: Email) -> None:
    """Let a disabled account sign in again."""
    _set_active(context, email, active=True)


def list_(
    context: typer.Context,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Every account: company, e-mail, active or disabled, levels as JSON; with tabs between."""
    from catalog.accounts import list_accounts

    for account in _run(context, list_accounts):
        if json_:
            echo_json(account._asdict())
            continue
        state = "active" if account.active else "disabled"
        cells = (account.company, account.email, state, json.dumps(account.permission))
        typer.echo("\t".join(map(for_terminal, cells)))


def _set_active(context: typer.Context, email: str, *, active: bool) -> None:
    from catalog.accounts import set_active

    address = _email(email)
    _run(context, lambda database: set_active(database, address, active=active))
    typer.echo(f"{address} is {'active' if active else 'disabled'}")


def _run(context: typer.Context, work: "Callable[[Database], Awaitable[T]]") -> T:
    return asyncio.run(_with_database(begin_quietly(context), work))


async def _with_database(settings: Settings, work: "Callable[[Database], Awaitable[T]]") -> T:
    async with open_migrated_database(settings) as database:
        return await work(database)


def _checked(model: Any, **given: Any) -> dict[str, Any]:
    from catalog.fields.base import Faults, read_fields

    faults = Faults()
    values = read_fields(model, given, faults=faults, require=False)
    if faults:
        raise typer.BadParameter(str(faults[0].message), param_hint=faults[0].place)
    return values


def _given(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _email(email: str) -> str:
    from catalog.fields.company import AccountFields

    return str(_checked(AccountFields, email=email)["email"])


def _levels(written: list[str]) -> dict[str, int]:
    from catalog.fields.company import AREAS, AccountFields

    levels: dict[str, int] = {}
    for text in written:
        area, _, level = text.rpartition("=")
        given = {area: level} if area else dict.fromkeys(AREAS, level)
        levels |= _checked(AccountFields, permission=given)["permission"]
    return levels


def _password(from_stdin: bool) -> str:
    if from_stdin:
        line = sys.stdin.readline()
        return line.removesuffix("\n").removesuffix("\r")
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            "there is no terminal to ask at; see --password-stdin", param_hint="password"
        )
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
