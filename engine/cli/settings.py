"""`proximity settings`: prints every setting with its value and source; secrets are hidden."""

import shutil
import textwrap
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Annotated, NamedTuple

import typer
from typer import Option

from engine.cli.command import Json, command, new_app, settings_of
from engine.cli.output import echo_json, say
from engine.process.settings import Settings, unit_of, variable_name
from engine.process.settings_sources import (
    GivenSetting,
    file_variable,
    given_settings,
    secret_settings,
    shown,
)

_INDENT = " " * 6
_WIDEST = 100
# The first word of a setting's name says which group it is in.
_GROUPS = {
    "Kafka": ("kafka", "topic", "group", "detection", "schema"),
    "Redis, SQL and secrets": ("redis", "database", "secret"),
    "Logs, metrics and traces of spans": ("log", "metrics", "otel"),
    "Management interface": ("api", "console", "login", "campaign", "venue", "beacon"),
    "Connectors": ("connector",),
    "Roles": (),
}


class _Row(NamedTuple):
    name: str
    value: str
    default: str
    source: str
    meaning: str
    unit: str
    group: str


app = new_app()


@command(app, "settings")
async def settings(
    context: typer.Context,
    changed: Annotated[bool, Option("--changed", help="Only those with another value.")] = False,
    as_json: Json = False,
) -> None:
    """Print every setting with its value, default, source and meaning."""
    order = list(_GROUPS)
    rows = sorted(
        _rows(settings_of(context), given_settings(context.find_root().obj)),
        key=lambda row: order.index(row.group),
    )
    if changed:
        rows = [row for row in rows if row.value != row.default]
    if as_json:
        for row in rows:
            echo_json(row._asdict())
        return
    for group, members in groupby(rows, key=lambda row: row.group):
        say(group)
        for row in members:
            _print(row)
    if changed and not rows:
        say("every setting has its default")


def _rows(current: Settings, given: Mapping[str, GivenSetting]) -> Iterator[_Row]:
    secrets = frozenset(secret_settings())
    groups = {word: group for group, words in _GROUPS.items() for word in words}
    for name, field in Settings.model_fields.items():
        source = given[name].source if name in given else "default"
        meaning = field.description or ""
        if name in secrets:
            meaning += f" ({file_variable(name)}: a file that holds it)"
        group = groups.get(name.partition("_")[0], "Roles")
        value, default = shown(getattr(current, name)), shown(field.default)
        yield _Row(variable_name(name), value, default, source, meaning, unit_of(name), group)


def _print(row: _Row) -> None:
    value = f"{row.value} {row.unit}" if row.unit and row.value else row.value
    origin = "default" if row.source == "default" else f"{row.source}; default: {row.default}"
    say(f"  {row.name}={value}  [{origin}]")
    width = min(_WIDEST, shutil.get_terminal_size().columns)
    for line in textwrap.wrap(row.meaning, width - len(_INDENT), break_long_words=False):
        say(_INDENT + line)
