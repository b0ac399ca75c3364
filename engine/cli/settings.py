"""`proximity settings`: prints every setting with its value and source; secrets are hidden."""

import os
from collections.abc import Iterable
from typing import Annotated, NamedTuple

import typer

from engine.cli.invocation import Invocation
from engine.cli.tables import echo_json, print_rows
from engine.process.secret_files import file_variable, secret_files, secret_settings
from engine.process.settings import Settings, variable_name
from engine.process.settings_display import shown
from engine.process.settings_sources import read_env_file


class _Row(NamedTuple):
    name: str
    value: str
    default: str
    source: str
    meaning: str


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("settings")(settings)


def settings(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Print every setting with its value, default, source and meaning."""
    rows = list(_rows(context.find_root().obj))
    if json:
        for row in rows:
            echo_json(row._asdict())
        return
    keys = ("name", "value", "default", "source", "meaning")
    print_rows(keys, rows, narrow=_blocks(rows))


def _rows(invocation: Invocation) -> Iterable[_Row]:
    current = invocation.settings()
    written = {} if invocation.env_file is None else read_env_file(invocation.env_file)
    environment = {key.upper() for key in os.environ}
    files, secrets = secret_files(written), frozenset(secret_settings())
    for name, field in Settings.model_fields.items():
        variable = variable_name(name)
        source = "default"
        if name in files:
            source = str(files[name])
        elif variable in environment:
            source = "environment"
        elif variable in written:
            source = str(invocation.env_file)
        value, meaning = shown(getattr(current, name)), field.description or ""
        if name in secrets:
            meaning += f" ({file_variable(name)}: a file that holds it)"
        yield _Row(variable, value, shown(field.default), source, meaning)


def _blocks(rows: Iterable[_Row]) -> Iterable[str]:
    """Lines for a narrow screen: name and value, then the meaning."""
    for row in rows:
        yield f"{row.name}={row.value}"
        changed = f" [{row.source}; default: {row.default or 'none'}]"
        yield f"    {row.meaning}{'' if row.source == 'default' else changed}"
