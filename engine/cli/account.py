"""`proximity account` and `proximity audit`: who may use the interface, and what they changed."""

import json
import sys
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import typer
from sqlalchemy import select
from typer import Argument, Option

from catalog.accounts import (
    create_account,
    list_accounts,
    set_active,
    set_password,
    set_permissions,
)
from catalog.database import Database
from catalog.fields import Faults, read_fields
from catalog.inputs import AREAS, AccountFields, CompanyFields
from catalog.models import AuditEntry
from engine.cli.command import Json, begin_quietly, command
from engine.cli.output import echo_json, print_table, say
from engine.cli.servers import company_named, open_migrated_database
from engine.kafka.messages import format_instant

_EMAIL = "anna@harbour.example"
# Reading everything, writing campaigns.
_FEW = (
    'create anna@harbour.example --company "Harbour Mall" \\\n'
    "    --permission 1 --permission campaign=2"
)


def _checked(model: Any, **given: Any) -> dict[str, Any]:
    faults = Faults()
    values = read_fields(model, given, faults=faults)
    for name in given.keys() & faults.keys():
        raise typer.BadParameter(faults[name], param_hint=name)
    return values


def _email(email: str) -> str:
    return str(_checked(AccountFields, email=email)["email"])


Email = Annotated[str, Argument(parser=_email, help="The account's e-mail address.")]
FromStdin = Annotated[bool, Option("--password-stdin", help="Read the password from stdin.")]
Levels = Annotated[
    list[str] | None,
    Option(
        "--permission",
        metavar="[AREA=]LEVEL",
        help="0 nothing, 1 read, 2 read and write; without an area for all areas. May be repeated. "
        f"Areas: {', '.join(AREAS)}.",
    ),
]
Running = Coroutine[Any, Any, None]
_written = json.JSONEncoder(ensure_ascii=False).encode


@command("account create", f'account create {_EMAIL} --company "Harbour Mall"', f"account {_FEW}")
def create(
    email: Email,
    company: Annotated[str, Option(help="The name of the company.")],
    create_company: Annotated[
        bool, Option("--create-company", help="Create the company if it does not exist.")
    ] = False,
    name: Annotated[str | None, Option(help="The person's name.")] = None,
    fonction: Annotated[str | None, Option(help="The person's job title.")] = None,
    permission: Levels = None,
    password_stdin: FromStdin = False,
) -> Running:
    """Create an account. Without --permission it has all permissions."""
    given = {"name": name, "fonction": fonction}
    values = _checked(AccountFields, **{k: v for k, v in given.items() if v is not None})
    owner = _checked(CompanyFields, name=company)["name"]
    levels = _levels(permission or ["2"])
    work = partial(
        create_account,
        email=email,
        **values,
        company=owner,
        password=_password(password_stdin),
        permission=levels,
        create_company=create_company,
        now=datetime.now(UTC),
    )
    return _run(work, f"{email} can sign in for {owner}")


@command("account password", f"account password {_EMAIL}")
def password(email: Email, password_stdin: FromStdin = False) -> Running:
    """Change the password. The account's sessions end at once."""
    work = partial(set_password, email=email, password=_password(password_stdin))
    return _run(work, f"{email} has a new password; its sessions have ended")


@command("account disable", f"account disable {_EMAIL}")
def disable(email: Email) -> Running:
    """Forbid the account to sign in. Its sessions end at once."""
    return _run(partial(set_active, email=email, active=False), f"{email} is disabled")


@command("account enable", f"account enable {_EMAIL}")
def enable(email: Email) -> Running:
    """Allow a disabled account to sign in again."""
    return _run(partial(set_active, email=email, active=True), f"{email} is active")


@command("account permissions", f"account permissions {_EMAIL} --permission analytic=1")
async def permissions(email: Email, permission: Levels = None) -> None:
    """Change the levels of the named areas. Without --permission show all levels."""
    levels = _levels(permission or [])
    async with open_migrated_database(begin_quietly()) as database:
        current = await set_permissions(database, email, levels)
    for area, level in current.items():
        say(f"{area} {level}")


@command("account list")
async def list_(as_json: Json = False) -> None:
    """List all accounts: company, e-mail, active or disabled, and the levels."""
    async with open_migrated_database(begin_quietly()) as database:
        accounts = await list_accounts(database)
    if as_json:
        for account in accounts:
            echo_json(account._asdict())
    elif not accounts:
        say("there is no account yet; create one: proximity account create")
    else:
        states = ("disabled", "active")
        rows = [
            (each.company, each.email, states[each.active], _shown_levels(each.permission))
            for each in accounts
        ]
        print_table(("company", "e-mail", "state", "levels"), rows)


def _shown_levels(levels: dict[str, int]) -> str:
    """The level that most areas have, and the levels of the other areas."""
    if not levels:
        return "none"
    most = max(sorted(set(levels.values())), key=list(levels.values()).count)
    others = [f"{area} {level}" for area, level in levels.items() if level != most]
    return ", ".join((*others, f"{'the rest' if others else 'all'} {most}"))


async def _run(work: Callable[[Database], Awaitable[object]], said: str) -> None:
    async with open_migrated_database(begin_quietly()) as database:
        await work(database)
    say(said)


def _levels(written: list[str]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for text in written:
        area, _, level = text.rpartition("=")
        given = {area: level} if area else dict.fromkeys(AREAS, level)
        levels |= _checked(AccountFields, permission=given)["permission"]
    return levels


def _password(from_stdin: bool) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            "there is no terminal for the password; see --password-stdin", param_hint="password"
        )
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))


@command("audit")
async def audit(
    company: Annotated[str | None, Option(help="Only this company: name or id.")] = None,
    limit: Annotated[int, Option(min=1, max=10_000, help="At most this many.")] = 100,
    as_json: Json = False,
) -> None:
    """Show the latest changes made through the interface, the newest first.

    Of a secret it shows only that it changed.
    """
    query = select(AuditEntry.__table__).order_by(AuditEntry.id.desc()).limit(limit)
    async with open_migrated_database(begin_quietly()) as database, database.read() as session:
        if company is not None:
            found = await company_named(session, company)
            query = query.where(AuditEntry.company_id == found.id)
        entries = (await session.execute(query)).all()
    for entry in entries:
        at = format_instant(entry.create_on.timestamp())
        changes = ", ".join(
            f"{name} {_written(entry.before.get(name))} -> {_written(value)}"
            for name, value in entry.after.items()
        )
        if as_json:
            echo_json(entry._asdict() | {"create_on": at})
        else:
            what = f"{at} {entry.email} {entry.action} {entry.kind} {entry.ref}"
            say(f"{what}: {changes}" if entry.action == "edit" else what)
    if not entries and not as_json:
        say("nothing was changed")
