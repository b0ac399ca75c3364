"""`proximity demo`: sends real detections through the whole product, on servers of its own."""

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.errors import CommandError, CommandInterruptedError
from engine.cli.servers import reason_of

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH_OF_A_FILE = 110


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    serve: Annotated[
        bool, typer.Option("--serve", help="Keep running after the summary, until Ctrl-C.")
    ] = False,
    seconds: Annotated[
        float,
        typer.Option(min=1, max=800, help="Replay the 13 minutes of walking in this many seconds."),
    ] = 50.0,
) -> None:
    """Send real beacon readings from a library through Kafka, Redis and the engine.

    Everything runs on this machine and is removed afterwards: an embedded Kafka broker, a Redis
    server, an SQLite file, all roles, the interface and a customer's service, with a catalog of 24
    beacons and a dozen campaigns. The demo needs no settings and reads none.
    """
    from rich.console import Console

    from engine.cli.demo.run import demo_settings
    from engine.process.logs import configure_logs

    configure_logs(demo_settings())
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_OF_A_FILE)
    with contextlib.ExitStack() as stack:
        directory = None
        if serve:
            scratch = tempfile.TemporaryDirectory(prefix="proximity-")
            directory = Path(stack.enter_context(scratch))
        asyncio.run(_until_signal(console, seconds, directory))


async def _until_signal(console: "Console", seconds: float, directory: Path | None) -> None:
    """Run the demo until it ends. A first signal drains it, a second one kills it."""
    from engine.process.lifecycle import stop_on_signals

    interrupted = asyncio.Event()
    with stop_on_signals(interrupted):
        work = asyncio.create_task(_run(console, seconds, directory))
        waiting = asyncio.create_task(interrupted.wait())
        await asyncio.wait([work, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait([work])
    if work.cancelled():
        raise CommandInterruptedError("interrupted")
    work.result()
    if directory is not None:
        console.print("stopped")


async def _run(console: "Console", seconds: float, directory: Path | None) -> None:
    from aiokafka.errors import KafkaError
    from redis.exceptions import RedisError
    from sqlalchemy.exc import SQLAlchemyError

    from engine.cli.demo.run import run_demo
    from engine.cli.embedded.child import ServerStartError
    from engine.process.errors import ServiceDiedError

    try:
        await run_demo(console, seconds, directory)
    except ServerStartError as error:
        raise CommandError(str(error)) from None
    except (KafkaError, RedisError, SQLAlchemyError, ServiceDiedError, OSError) as error:
        raise CommandError(f"the demo failed: {reason_of(error)}") from error
