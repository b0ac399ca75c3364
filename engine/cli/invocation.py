"""The options before a command's name, which say where its settings come from."""

import logging
from dataclasses import dataclass
from pathlib import Path

import typer

from engine.process.settings import Settings
from engine.process.settings_sources import load_settings


@dataclass(frozen=True)
class Invocation:
    """The options before the command's name."""

    env_file: Path | None

    def settings(self) -> Settings:
        """The settings of this call. Raises SettingsError."""
        return load_settings(self.env_file)


def settings_of(context: typer.Context) -> Settings:
    """The settings for the call of `context`. Raises SettingsError."""
    invocation: Invocation = context.find_root().obj
    return invocation.settings()


def begin_quietly(context: typer.Context) -> Settings:
    """The settings of a short command, which logs only warnings unless LOG_LEVEL was set."""
    from engine.process.logs import configure_logs

    settings = settings_of(context)
    is_chosen = "log_level" in settings.model_fields_set
    level = settings.log_level if is_chosen else "warning"
    configure_logs(settings.model_copy(update={"log_level": level}))
    if level != "debug":
        # aiokafka also raises the errors that it logs, and the command shows them in one line.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    return settings
