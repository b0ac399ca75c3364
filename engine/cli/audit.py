"""`proximity audit`: shows the changes made through the management interface."""

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog.plain_text import for_terminal
from engine.cli.errors import CommandError
from engine.cli.invocation import begin_quietly
from engine.cli.servers import open_migrated_database
from engine.cli.tables import echo_json
from engine.process.settings import Settings

if TYPE_CHECKING:
    from catalog.models import AuditEntry

_MOST = 10_000


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit")(audit)


def audit(
    context: typer.Context,
    company: Annotated[str | None, typer.Option(help="Only this company: name or id.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=_MOST, help="At most this many.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show the latest changes made through the interface, the newest first.

    Of a secret it shows only that it changed.
    """
    entries = asyncio.run(_read(begin_quietly(context), company, limit))
    for entry in entries:
        if as_json:
            echo_json(_fields(entry))
        else:
            typer.echo(for_terminal(_line(entry)))
    if not entries and not as_json:
        typer.echo("nothing was changed")


async def _read(settings: Settings, company: str | None, limit: int) -> "list[AuditEntry]":
    from sqlalchemy import select

    from catalog.company_lookup import find_company
    from catalog.models import AuditEntry

    query = select(AuditEntry).order_by(AuditEntry.id.desc()).limit(limit)
    async with open_migrated_database(settings) as database, database.read() as session:
        if company is not None:
            found = await find_company(session, company)
            if found is None:
                raise CommandError(f"there is no company {company!r}")
            query = query.where(AuditEntry.company_id == found.id)
        return list(await session.scalars(query))


def _line(entry: "AuditEntry") -> str:
    line = f"{_time(entry)} {entry.email} {entry.action} {entry.kind} {entry.ref}"
    changes = ", ".join(
        f"{name} {json.dumps(entry.before.get(name))} -> {json.dumps(value)}"
        for name, value in entry.after.items()
    )
    return f"{line}: {changes}" if entry.action == "edit" else line


def _time(entry: "AuditEntry") -> str:
    from engine.kafka.timestamps import format_instant

    return format_instant(entry.create_on.timestamp())


def _fields(entry: "AuditEntry") -> dict[str, Any]:
    return {
        "id": entry.id,
        "create_on": _time(entry),
        "company_id": entry.company_id,
        "account_id": entry.account_id,
        "email": entry.email,
        "request": entry.request,
        "action": entry.action,
        "kind": entry.kind,
        "ref": entry.ref,
        "before": entry.before,
        "after": entry.after,
    }
