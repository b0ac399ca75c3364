"""`proximity audit`: shows the changes made through the management interface."""

import json
from typing import Annotated, Any

import typer
from sqlalchemy import select

from catalog.models import AuditEntry
from engine.cli.command import Json, begin_quietly, command, new_app
from engine.cli.output import echo_json, say
from engine.cli.servers import company_named, open_migrated_database
from engine.kafka.messages import format_instant

_FIELDS = (
    *("id", "create_on", "company_id", "account_id", "email", "request", "action", "kind", "ref"),
    *("before", "after"),
)

app = new_app()


@command(app, "audit")
async def audit(
    context: typer.Context,
    company: Annotated[str | None, typer.Option(help="Only this company: name or id.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most this many.")] = 100,
    as_json: Json = False,
) -> None:
    """Show the latest changes made through the interface, the newest first.

    Of a secret it shows only that it changed.
    """
    settings = begin_quietly(context)
    query = select(AuditEntry).order_by(AuditEntry.id.desc()).limit(limit)
    async with open_migrated_database(settings) as database, database.read() as session:
        if company is not None:
            found = await company_named(session, company)
            query = query.where(AuditEntry.company_id == found.id)
        entries = list(await session.scalars(query))
    for entry in entries:
        fields = {name: getattr(entry, name) for name in _FIELDS}
        fields["create_on"] = format_instant(entry.create_on.timestamp())
        if as_json:
            echo_json(fields)
        else:
            say(_line(fields))
    if not entries and not as_json:
        say("nothing was changed")


def _line(entry: dict[str, Any]) -> str:
    line = f"{entry['create_on']} {entry['email']} {entry['action']} {entry['kind']} {entry['ref']}"
    changes = ", ".join(
        f"{name} {json.dumps(entry['before'].get(name))} -> {json.dumps(value)}"
        for name, value in entry["after"].items()
    )
    return f"{line}: {changes}" if entry["action"] == "edit" else line
