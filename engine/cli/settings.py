"""`proximity settings`: prints every setting with its value and source; secrets are hidden."""

import shutil
import textwrap
from collections.abc import Iterator, Mapping
from typing import Annotated

from typer import Option

from engine.cli.command import ENV_FILE, Json, command, read_settings
from engine.cli.output import echo_json, say
from engine.process.settings import Settings, unit_of, variable_name
from engine.process.settings_sources import (
    GivenSetting,
    file_variable,
    given_settings,
    secret_settings,
    shown,
)

_INDENT = " " * 4
_WIDEST = 100


@command("settings")
async def settings(
    changed: Annotated[bool, Option("--changed", help="Only those with another value.")] = False,
    as_json: Json = False,
) -> None:
    """Print every setting with its value, default, source and meaning."""
    width = min(_WIDEST, shutil.get_terminal_size().columns) - len(_INDENT)
    number = 0
    for row in _rows(read_settings(), given_settings(ENV_FILE.get())):
        if changed and row["value"] == row["default"]:
            continue
        number += 1
        if as_json:
            echo_json(row)
            continue
        unit = f" {row['unit']}" if row["unit"] and row["value"] else ""
        default = f"; default: {row['default']}" if row["source"] != "default" else ""
        say(f"{row['name']}={row['value']}{unit}  [{row['source']}{default}]")
        for line in textwrap.wrap(row["meaning"], width, break_long_words=False):
            say(_INDENT + line)
    if not number and not as_json:
        say("every setting has its default")


def _rows(current: Settings, given: Mapping[str, GivenSetting]) -> Iterator[dict[str, str]]:
    secrets = frozenset(secret_settings())
    for name, field in Settings.model_fields.items():
        meaning = field.description or ""
        if name in secrets:
            meaning += f" ({file_variable(name)}: a file that holds it)"
        yield {
            "name": variable_name(name),
            "value": shown(getattr(current, name)),
            "default": shown(field.default),
            "source": given[name].source if name in given else "default",
            "meaning": meaning,
            "unit": unit_of(name),
        }
