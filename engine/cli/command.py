"""What every command uses: its settings, the errors that end it, and examples for its help."""

import logging
from dataclasses import dataclass
from pathlib import Path

import typer

from catalog.errors import AccountError, DatabaseUrlError, RedisUrlError, SecretKeyError
from connectors.errors import CertificatesError, NothingToTryError
from engine.kafka.dead_letters import TooManyDeadLettersError
from engine.process.errors import PortInUseError, SchemaError, SchemaRegistryError, ServiceDiedError
from engine.process.settings import Settings
from engine.process.settings_sources import load_settings


class CommandError(Exception):
    """A command could not do its work; the message says what and why, on one line."""


class CommandInterruptedError(CommandError):
    """Ctrl-C ended a command; the message says what was done before."""


# Errors that end a command as CommandError does: their messages are shown unchanged.
FAILURES = (
    CommandError,
    AccountError,
    CertificatesError,
    DatabaseUrlError,
    NothingToTryError,
    PortInUseError,
    RedisUrlError,
    SchemaError,
    SchemaRegistryError,
    SecretKeyError,
    ServiceDiedError,
    TooManyDeadLettersError,
)


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
        # The command shows the last complaint in its one line (servers.kafka_log).
        kafka = logging.getLogger("aiokafka")
        kafka.propagate = False
        kafka.addHandler(logging.NullHandler())
    return settings


def new_app() -> typer.Typer:
    """The commands of a module, which engine/cli/application.py adds to `proximity`."""
    return typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)


def examples(*lines: str) -> str:
    """The epilog of a command's help: each example stays on its own line."""
    return "\n".join(("\b", "Examples:", *(f"  proximity {line}" for line in lines)))


def moment(option: str, written: str) -> float:
    """The time in epoch seconds. Raises BadParameter for an invalid one."""
    from engine.kafka.messages import parse

    try:
        return parse(int(written) if written.isascii() and written.isdigit() else written)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
