"""What every command uses: how it is added to `proximity`, its settings, and its options."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer
from typer import Option

if TYPE_CHECKING:
    from engine.process.settings import Settings

FAILED, USAGE, INTERRUPTED = 1, 2, 130  # 130: a shell's status for a program that SIGINT ended

P = ParamSpec("P")
T = TypeVar("T")
Work = Callable[P, Coroutine[Any, Any, None]]
# The file of settings that the command line names.
ENV_FILE: ContextVar[Path | None] = ContextVar("env_file", default=None)
# The module of each command, imported when the command is called, and its line in the list of
# commands, which is also the help of a group.
COMMANDS = {
    "run": ("run", "Run one role, or all, until SIGTERM or SIGINT; then drain and exit with 0."),
    "api": ("run", "Serve the management interface until SIGTERM or SIGINT."),
    "migrate": ("run", "Create or upgrade the tables in DATABASE_URL."),
    "account": ("account", "Accounts of the management interface, and their permissions."),
    "catalog": ("catalog", "The catalog: companies, venues, beacons, campaigns."),
    "index": ("catalog", "The index in Redis, from which triggers read the catalog."),
    "connector": ("connector", "Customers' web services, which provide contents of campaigns."),
    "publish": ("publish", "Publish detections from FILE, keyed by the device's udid."),
    "replay": ("replay", "Decide recorded detections again, and show what would have been sent."),
    "notifications": ("notifications", "Notifications that the engine has published."),
    "dead-letters": ("dead_letters", "Records that could not be processed."),
    "demo": ("demo", "Send real beacon readings through Kafka, Redis and the engine."),
    "statistics": ("statistics", "Show detections and notifications by day, venue and campaign."),
    "verify": ("verify", "Count the topics again, as far as SQL has recorded them, and compare."),
    "audit": ("account", "Show the latest changes made through the interface, newest first."),
    "explain": ("explain", "Explain why a detection would fire each campaign of a place, or not."),
    "tail": ("device", "Show the decisions of running triggers as they happen, until Ctrl-C."),
    "device": ("device", "Show the last decisions on the device UDID of COMPANY."),
    "forget": ("device", "Delete all data of the device UDID of COMPANY from SQL and Redis."),
    "check": ("check", "Check everything that a process needs, and change nothing."),
    "settings": ("settings", "Print every setting with its value, default, source and meaning."),
}
# The commands of the modules that are imported.
commands = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
_groups = {"": commands}
Json = Annotated[bool, Option("--json", help="One JSON object a line.")]


class CommandError(Exception):
    """A command could not do its work; the message says what and why, on one line."""


def read_settings() -> "Settings":
    """The settings, from the environment and `--env-file`. Raises SettingsError."""
    from engine.process.settings_sources import load_settings

    return load_settings(ENV_FILE.get())


def begin_quietly() -> "Settings":
    """The settings of a short command, which logs only warnings unless LOG_LEVEL was set."""
    from engine.process.logs import configure_logs

    settings = read_settings()
    is_chosen = "log_level" in settings.model_fields_set
    level = settings.log_level if is_chosen else "warning"
    configure_logs(settings.model_copy(update={"log_level": level}))
    # An error's line has what aiokafka said last (servers.py).
    logging.getLogger("aiokafka").propagate = level == "debug"
    return settings


def command(words: str, *examples: str) -> Callable[[Work[P]], Work[P]]:
    """Make a function whose coroutine does the work the command `words`, with examples in its help.

    Its docstring is the help. What it does before it returns the coroutine (a prompt, a read of
    standard input) ends at once on Ctrl-C.
    """
    group, _, name = words.rpartition(" ")
    if group not in _groups:
        _groups[group] = typer.Typer(help=COMMANDS[group][1], no_args_is_help=True)
        commands.add_typer(_groups[group], name=group)

    def add(work: Work[P]) -> Work[P]:
        @wraps(work)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            asyncio.run(work(*args, **kwargs))

        summary = " ".join((work.__doc__ or "").partition("\n\n")[0].split())
        _groups[group].command(
            name,
            short_help=summary.partition(". ")[0].removesuffix(".") + ".",
            # \b keeps each example on a line of its own.
            epilog="\n".join(("\b", "Examples:", *(f"  proximity {each}" for each in examples)))
            if examples
            else None,
        )(run)
        return work

    return add


@contextmanager
def telling(done: Callable[[], str]) -> Iterator[None]:
    """Add to the line of an error, and to that of Ctrl-C, what was done before."""
    try:
        yield
    except asyncio.CancelledError:
        raise typer.Abort(done()) from None
    except Exception as error:
        error.add_note(done())
        raise


@contextmanager
def kafka_complaints() -> Iterator[deque[str]]:
    """The last complaint of aiokafka, which logs why no broker answers and does not raise it."""
    complaints: deque[str] = deque(maxlen=1)
    handler, logger = logging.Handler(logging.WARNING), logging.getLogger("aiokafka")
    handler.emit = lambda record: complaints.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield complaints
    finally:
        logger.removeHandler(handler)


def parsed(option: str, parse: Callable[[str], T], text: str) -> T:
    """The value of an option. Raises BadParameter where `parse` raises ValueError."""
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def moment(written: str) -> float:
    """The time in epoch seconds. Raises ValueError."""
    from engine.kafka.messages import parse

    return parse(int(written) if written.isascii() and written.isdigit() else written)
