"""`proximity audit`: who changed what through the management interface, and when."""

import asyncio
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catalog.plain_text import for_terminal
from engine.cli.errors import CommandError
from engine.cli.invocation import settings_of
from engine.cli.kafka_faults import quiet_logs
from engine.process.settings import Settings

if TYPE_CHECKING:
    from catalog.models import AuditEntry

_MOST = 10_000


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("audit")(audit)


def audit(
    context: typer.Context,
    company: Annotated[str | None, typer.Option(help="Only of this company, by its name.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=_MOST, help="At most so many.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Show the latest changes made through the interface, the newest first.

    Secrets are left out: of them only that they changed.
    """

    settings = settings_of(context)
    quiet_logs(settings)
    entries = asyncio.run(_read(settings, company, limit))
    for entry in entries:
        typer.echo(for_terminal(_as_json(entry) if as_json else _line(entry)))
    if not entries and not as_json:
        typer.echo("nothing was changed")


async def _read(settings: Settings, company: str | None, limit: int) -> "list[AuditEntry]":
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError

    from catalog.database import open_database
    from catalog.errors import DatabaseUrlError
    from catalog.migrate import pending_on
    from catalog.models import AuditEntry, Company

    try:
        database = open_database(settings.database_url.get_secret_value())
    except DatabaseUrlError as error:
        raise CommandError(str(error)) from None
    query = select(AuditEntry).order_by(AuditEntry.id.desc()).limit(limit)
    try:
        if await pending_on(database.engine):
            raise CommandError("the database lacks what this version needs; run: proximity migrate")
        async with database.read() as session:
            if company is not None:
                number = await session.scalar(select(Company.id).where(Company.name == company))
                if number is None:
                    raise CommandError(f"there is no company {company!r}")
                query = query.where(AuditEntry.company_id == number)
            return list(await session.scalars(query))
    except (SQLAlchemyError, OSError) as error:
        reason = str(getattr(error, "orig", None) or error) or type(error).__name__
        raise CommandError(f"the database refused: {reason.splitlines()[0]}") from None
    finally:
        await database.close()


def _line(entry: "AuditEntry") -> str:
    fields = ", ".join(_changes(entry))
    what = f"{entry.action} {entry.kind} {entry.ref}"
    when = entry.create_on.isoformat(timespec="seconds")
    return f"{when} {entry.email} {what}" + (f": {fields}" if entry.action == "edit" else "")


def _changes(entry: "AuditEntry") -> list[str]:
    return [
        f"{name} {json.dumps(entry.before.get(name))} -> {json.dumps(value)}"
        for name, value in entry.after.items()
    ]


def _as_json(entry: "AuditEntry") -> str:
    told: dict[str, Any] = {
        "id": entry.id,
        "create_on": entry.create_on.isoformat(timespec="seconds"),
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
    return json.dumps(told, ensure_ascii=False)
