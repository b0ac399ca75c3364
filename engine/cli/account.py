"""`proximity account` and `proximity audit`: who may use the interface, and what they changed."""

import json
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from typer import Argument, Option

from catalog.fields import Faults, read_fields
from catalog.inputs import AREAS, NOTHING, AccountFields, CompanyFields
from catalog.models import Account, AuditEntry, Company
from catalog.passwords import MIN_PASSWORD_LENGTH, hash_password
from engine.cli.command import CommandError, Json, begin_quietly, command
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
    levels = dict.fromkeys(AREAS, NOTHING) | _levels(permission or ["2"])
    hashed = _hashed_password(password_stdin)

    async def work() -> None:
        now = datetime.now(UTC)
        account = Account(
            email=email, password_hash=hashed, permission=levels, create_on=now, **values
        )
        async with _writing() as session:
            found = await session.scalar(select(Company).where(Company.name == owner))
            if found is None and not create_company:
                raise CommandError(f"there is no company {owner!r}; see --create-company")
            account.company = found or Company(name=owner, create_on=now)
            session.add(account)
            try:
                await session.flush()
            except IntegrityError:
                raise CommandError(f"there is an account {email} already") from None
        say(f"{email} can sign in for {owner}")

    return work()


@command("account password", f"account password {_EMAIL}")
def password(email: Email, password_stdin: FromStdin = False) -> Running:
    """Change the password. The account's sessions end at once."""
    hashed = _hashed_password(password_stdin)
    return _set(email, "has a new password; its sessions have ended", password_hash=hashed)


@command("account disable", f"account disable {_EMAIL}")
def disable(email: Email) -> Running:
    """Forbid the account to sign in. Its sessions end at once."""
    return _set(email, "is disabled", active=False)


@command("account enable", f"account enable {_EMAIL}")
def enable(email: Email) -> Running:
    """Allow a disabled account to sign in again."""
    return _set(email, "is active", active=True)


@command("account permissions", f"account permissions {_EMAIL} --permission analytic=1")
async def permissions(email: Email, permission: Levels = None) -> None:
    """Change the levels of the named areas. Without --permission show all levels."""
    levels = _levels(permission or [])
    async with _writing() as session:
        account = await _account(session, email)
        account.permission = current = account.permission | levels
    for area, level in current.items():
        say(f"{area} {level}")


@command("account list")
async def list_(as_json: Json = False) -> None:
    """List all accounts: company, e-mail, active or disabled, and the levels."""
    query = (
        select(Account.email, Company.name.label("company"), Account.active, Account.permission)
        .join(Account.company)
        .order_by(Company.name, Account.email)
    )
    async with open_migrated_database(begin_quietly()) as database, database.read() as session:
        accounts = (await session.execute(query)).all()
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


@asynccontextmanager
async def _writing() -> AsyncIterator[AsyncSession]:
    async with (
        open_migrated_database(begin_quietly()) as database,
        database.write.begin() as session,
    ):
        yield session


async def _account(session: AsyncSession, email: str) -> Account:
    account = await session.scalar(select(Account).where(Account.email == email).with_for_update())
    if account is None:
        raise CommandError(f"there is no account {email}")
    return account


async def _set(email: str, done: str, **values: object) -> None:
    async with _writing() as session:
        account = await _account(session, email)
        for name, value in values.items():
            setattr(account, name, value)
    say(f"{email} {done}")


def _levels(written: list[str]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for text in written:
        area, _, level = text.rpartition("=")
        given = {area: level} if area else dict.fromkeys(AREAS, level)
        levels |= _checked(AccountFields, permission=given)["permission"]
    return levels


def _hashed_password(from_stdin: bool) -> str:
    if from_stdin:
        given = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        given = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    else:
        raise typer.BadParameter(
            "there is no terminal for the password; see --password-stdin", param_hint="password"
        )
    if len(given) < MIN_PASSWORD_LENGTH:
        raise CommandError(f"the password is too short: {MIN_PASSWORD_LENGTH} characters at least")
    return hash_password(given)


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
