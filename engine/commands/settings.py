"""`proximity settings`: every setting, its value, its source, secrets hidden."""

import os

import typer
from dotenv import dotenv_values
from pydantic import SecretStr
from rich.console import Console
from rich.table import Table

from engine.commands.context import Invocation
from engine.settings import PREFIX, Settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("settings")(settings)


def settings(context: typer.Context) -> None:
    """Print every setting with its value, its default, where it comes from and what it means."""
    invocation: Invocation = context.find_root().obj
    current = invocation.settings()
    table = Table("setting", "value", "default", "source", "meaning", box=None)
    for name, field in Settings.model_fields.items():
        table.add_row(
            PREFIX + name.upper(),
            shown(getattr(current, name)),
            shown(field.default),
            _source(name, invocation),
            field.description or "",
        )
    console = Console()
    if not console.is_terminal:
        console = Console(width=220)
    console.print(table)


def shown(value: object) -> str:
    """A setting's value as a person may see it: a secret shows only that it is set."""
    if isinstance(value, SecretStr):
        return _without_password(value.get_secret_value())
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return "" if value is None else str(value)


def _without_password(secret: str) -> str:
    """The whole of a secret is hidden, but for a URL that carries no credentials."""
    if "://" in secret and "@" not in secret and "?" not in secret:
        return secret
    return "********" if secret else ""


def _source(name: str, invocation: Invocation) -> str:
    variable = PREFIX + name.upper()
    if any(key.upper() == variable for key in os.environ):
        return "environment"
    if invocation.env_file is not None:
        written = {key.upper() for key in dotenv_values(invocation.env_file)}
        if variable in written:
            return str(invocation.env_file)
    return "default"
