"""`proximity demo`: real detections through the whole product, on servers of its own."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.errors import CommandError, CommandInterruptedError

if TYPE_CHECKING:
    from rich.console import Console

    from engine.cli.demo.stage import Stage

_WIDTH_OF_A_FILE = 110
_NEXT = (
    "What next:",
    "  {command} demo --serve     it keeps running, for you to look around",
    "  {command} publish --help   your own detections, JSON or CSV",
    "  {command} run --help       on your own Kafka, Redis and PostgreSQL",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    serve: Annotated[
        bool, typer.Option("--serve", help="Keep running after the summary, until Ctrl-C.")
    ] = False,
    seconds: Annotated[
        float,
        typer.Option(min=1, max=800, help="Replay the 13 minutes of walking in so many seconds."),
    ] = 50.0,
) -> None:
    """Send real beacon readings from a library through Kafka, Redis and the engine.

    Everything runs on this machine and is gone afterwards: an embedded Kafka broker, a Redis
    server and an SQLite file, all roles, the interface and a customer's service, with a catalog
    of 24 beacons and a dozen campaigns. It needs no settings and reads none.
    """
    from rich.console import Console

    from engine.cli.demo.stage import demo_settings
    from engine.process.logs import configure_logs

    configure_logs(demo_settings())
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_OF_A_FILE)
    with _directory(serve) as directory:
        asyncio.run(_until_signal(console, seconds, directory))


@contextmanager
def _directory(wanted: bool) -> Iterator[Path | None]:
    if not wanted:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="proximity-") as directory:
        yield Path(directory)


async def _until_signal(console: "Console", seconds: float, directory: Path | None) -> None:
    """The demo, until it ends or a signal asks it to: the first one drains, a second one kills."""
    from engine.process.lifecycle import stop_on_signals

    serving = False

    def done(stage: "Stage") -> None:
        nonlocal serving
        serving = directory is not None
        _tell(console, stage, directory)

    interrupted = asyncio.Event()
    with stop_on_signals(interrupted):
        work = asyncio.create_task(_perform(console, seconds, directory, done))
        waiting = asyncio.create_task(interrupted.wait())
        await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait([work])
    if work.cancelled():
        if not serving:
            raise CommandInterruptedError("interrupted")
        console.print("stopped")
        return
    work.result()


async def _perform(
    console: "Console", seconds: float, directory: Path | None, done: "Callable[[Stage], None]"
) -> None:
    from aiokafka.errors import KafkaError
    from redis.exceptions import RedisError
    from sqlalchemy.exc import SQLAlchemyError

    from engine.cli.demo.serving import env_file
    from engine.cli.demo.stage import perform
    from engine.cli.embedded.child import ServerStartError
    from engine.process.errors import ServiceDiedError

    try:
        file = None if directory is None else env_file(directory)
        await perform(console, seconds, file, done, lambda value: _show(console, value))
    except ServerStartError as error:
        raise CommandError(str(error)) from None
    except (
        KafkaError,
        RedisError,
        SQLAlchemyError,
        ServiceDiedError,
        OSError,
        TimeoutError,
    ) as error:
        raise CommandError(f"the demo failed: {error or type(error).__name__}") from error


def _tell(console: "Console", stage: "Stage", directory: Path | None) -> None:
    from engine.cli.demo.serving import command, told, write_files

    if directory is None:
        lines: list[str] = [line.format(command=command()) for line in _NEXT]
    else:
        write_files(stage, directory)
        lines = list(told(stage, directory))
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def _show(console: "Console", value: bytes) -> None:
    from engine.cli.notifications.line import one_line, read_notification

    notification = read_notification(value)
    if notification is not None:
        width = console.width if console.is_terminal else None
        line = one_line(notification, width=width)
        console.print(line, highlight=False, markup=False, soft_wrap=True)
