"""`proximity account`: manages the accounts of the management interface."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import typer

from catalog.accounts import (
    NewAccount,
    create_account,
    list_accounts,
    set_active,
    set_password,
    set_permissions,
)
from catalog.database import Database
from catalog.fields import Faults, read_fields
from catalog.inputs import AREAS, AccountFields, CompanyFields
from engine.cli.command import begin_quietly, examples, new_app
from engine.cli.output import echo_json, print_table
from engine.cli.servers import open_migrated_database

T = TypeVar("T")
_EMAIL = "anna@harbour.example"
Email = Annotated[str, typer.Argument(help="The account's e-mail address.")]
FromStdin = Annotated[
    bool, typer.Option("--password-stdin", help="Read the password from standard input.")
]
# Reading everything, writing campaigns.
_FEW = (
    'create anna@harbour.example --company "Harbour Mall" \\\n'
    "    --permission 1 --permission campaign=2"
)
Levels = Annotated[
    list[str] | None,
    typer.Option(
        "--permission",
        metavar="[AREA=]LEVEL",
        help="0 nothing, 1 read, 2 read and write; without an area for all areas. May be repeated. "
        "Areas: profile, campaign, device, analytic, region, beacon, realtime, nfc, qrcode, tag, "
        "connector, fidelity, form, crm.",
    ),
]


app = new_app()
group = typer.Typer(
    help="Accounts of the management interface, and their permissions.", no_args_is_help=True
)
app.add_typer(group, name="account")


@group.command(
    epilog=examples(f'account create {_EMAIL} --company "Harbour Mall"', f"account {_FEW}")
)
def create(
    context: typer.Context,
    email: Email,
    company: Annotated[str, typer.Option(help="The name of the company.")],
    create_company: Annotated[
        bool, typer.Option("--create-company", help="Create the company if it does not exist.")
    ] = False,
    name: Annotated[str | None, typer.Option(help="The person's name.")] = None,
    fonction: Annotated[str | None, typer.Option(help="The person's job title.")] = None,
    permission: Levels = None,
    password_stdin: FromStdin = False,
) -> None:
    """Create an account. Without --permission it has all permissions."""
    given = {"email": email, "name": name, "fonction": fonction}
    submitted = {field: value for field, value in given.items() if value is not None}
    values = _checked(AccountFields, **submitted)
    owner = _checked(CompanyFields, name=company)["name"]
    levels = _levels(permission or ["2"])
    new = NewAccount(**values, company=owner, password=_password(password_stdin), permission=levels)
    now = datetime.now(UTC)
    _run(context, lambda db: create_account(db, new, create_company=create_company, now=now))
    typer.echo(f"{new.email} can sign in for {owner}")


@group.command(epilog=examples(f"account password {_EMAIL}"))
def password(context: typer.Context, email: Email, password_stdin: FromStdin = False) -> None:
    """Change the password. The account's sessions end at once."""
    address, chosen = _email(email), _password(password_stdin)
    _run(context, lambda database: set_password(database, address, chosen))
    typer.echo(f"{address} has a new password; its sessions have ended")


@group.command(epilog=examples(f"account permissions {_EMAIL} --permission analytic=1"))
def permissions(context: typer.Context, email: Email, permission: Levels = None) -> None:
    """Change the levels of the named areas. Without --permission show all levels."""
    address, levels = _email(email), _levels(permission or [])
    current = _run(context, lambda database: set_permissions(database, address, levels))
    for area, level in current.items():
        typer.echo(f"{area} {level}")


@group.command(epilog=examples(f"account disable {_EMAIL}"))
def disable(context: typer.Context, email: Email) -> None:
    """Forbid the account to sign in. Its sessions end at once."""
    _set_active(context, email, active=False)


@group.command(epilog=examples(f"account enable {_EMAIL}"))
def enable(context: typer.Context, email: Email) -> None:
    """Allow a disabled account to sign in again."""
    _set_active(context, email, active=True)


@group.command("list")
def list_(
    context: typer.Context,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List all accounts: company, e-mail, active or disabled, and the levels."""
    accounts = _run(context, list_accounts)
    if json_:
        for account in accounts:
            echo_json(account._asdict())
        return
    if not accounts:
        typer.echo("there is no account yet; create one: proximity account create")
        return
    states = ("disabled", "active")
    rows = [(a.company, a.email, states[a.active], _shown_levels(a.permission)) for a in accounts]
    print_table(("company", "e-mail", "state", "levels"), rows)


def _shown_levels(levels: dict[str, int]) -> str:
    """The level that most areas have, and the levels of the other areas."""
    if not levels:
        return "none"
    most = max(sorted(set(levels.values())), key=list(levels.values()).count)
    others = [f"{area} {level}" for area, level in levels.items() if level != most]
    return ", ".join((*others, f"{'the rest' if others else 'all'} {most}"))


def _set_active(context: typer.Context, email: str, *, active: bool) -> None:
    address = _email(email)
    _run(context, lambda database: set_active(database, address, active=active))
    typer.echo(f"{address} is {'active' if active else 'disabled'}")


def _run(context: typer.Context, work: Callable[[Database], Awaitable[T]]) -> T:
    settings = begin_quietly(context)

    async def run() -> T:
        async with open_migrated_database(settings) as database:
            return await work(database)

    return asyncio.run(run())


def _checked(model: Any, **given: Any) -> dict[str, Any]:
    faults = Faults()
    values = read_fields(model, given, faults=faults, require=False)
    if faults:
        raise typer.BadParameter(str(faults[0].message), param_hint=faults[0].place)
    return values


def _email(email: str) -> str:
    return str(_checked(AccountFields, email=email)["email"])


def _levels(written: list[str]) -> dict[str, int]:
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
            "there is no terminal for the password; see --password-stdin", param_hint="password"
        )
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
