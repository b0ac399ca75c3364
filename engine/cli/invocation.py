"""What every command is told before its own options."""

from dataclasses import dataclass
from pathlib import Path

import typer

from engine.process.settings import Settings
from engine.process.settings_sources import load_settings


@dataclass(frozen=True)
class Invocation:
    """The options in front of the command's name."""

    env_file: Path | None

    def settings(self, **overrides: object) -> Settings:
        """The settings of this call; `overrides` win. Raises SettingsError."""
        return load_settings(self.env_file, **overrides)


def settings_of(context: typer.Context, **overrides: object) -> Settings:
    """The settings of the call that `context` belongs to."""
    invocation: Invocation = context.find_root().obj
    return invocation.settings(**overrides)
