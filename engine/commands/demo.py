"""`proximity demo`: real detections through the whole product, on servers of its own."""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.commands import CommandError, CommandInterruptedError

if TYPE_CHECKING:
    from rich.console import Console

    from engine.settings import Settings

_WIDTH_OF_A_FILE = 110
_NEXT = (
    "What next:",
    "  proximity demo --serve      the same, and keeps running for you to look around",
    "  proximity publish --help    your own detections, from JSON Lines or CSV",
    "  proximity run --help        the engine on your Kafka, Redis and PostgreSQL",
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
    server and an SQLite file, with a catalog of 24 beacons and a dozen campaigns. It needs no
    settings and reads none.
    """
    from rich.console import Console

    from engine.demo.stage import demo_settings
    from engine.logs import configure_logs

    configure_logs(demo_settings())
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_OF_A_FILE)
    with _env_file(serve) as env_file:
        asyncio.run(_until_signal(console, seconds, env_file))


@contextmanager
def _env_file(wanted: bool) -> Iterator[Path | None]:
    if not wanted:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="proximity-demo-") as directory:
        yield Path(directory) / "demo.env"


async def _until_signal(console: "Console", seconds: float, env_file: Path | None) -> None:
    """The demo, until it ends or a signal asks it to: the first one drains, a second one kills."""
    from engine.lifecycle import stop_on_signals

    serving = False

    def done(settings: "Settings", port: int) -> None:
        nonlocal serving
        serving = env_file is not None
        _tell(console, settings, port, env_file)

    interrupted = asyncio.Event()
    with stop_on_signals(interrupted):
        work = asyncio.create_task(_perform(console, seconds, env_file, done))
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
    console: "Console",
    seconds: float,
    env_file: Path | None,
    done: "Callable[[Settings, int], None]",
) -> None:
    from aiokafka.errors import KafkaError
    from redis.exceptions import RedisError
    from sqlalchemy.exc import SQLAlchemyError

    from engine.demo.stage import perform
    from engine.embedded.child import ServerStartError
    from engine.lifecycle import ServiceDiedError

    try:
        await perform(console, seconds, env_file, done)
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


def _tell(console: "Console", settings: "Settings", port: int, env_file: Path | None) -> None:
    if env_file is None:
        lines: tuple[str, ...] = ("", *_NEXT)
    else:
        lines = _addresses(settings, port, env_file)
    console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)


def _addresses(settings: "Settings", port: int, env_file: Path) -> tuple[str, ...]:
    if settings.secret_key is not None:
        with env_file.open("a", encoding="utf-8") as file:
            file.write(f"PROXIMITY_SECRET_KEY={settings.secret_key.get_secret_value()}\n")
            file.write(f"PROXIMITY_PATH_LOSS_EXPONENT={settings.path_loss_exponent}\n")
    return (
        "",
        "Still running, until Ctrl-C:",
        f"  Kafka      {settings.kafka_bootstrap_servers}",
        f"  Redis      {settings.redis_url.get_secret_value()}",
        f"  database   {settings.database_url.get_secret_value()}",
        f"  metrics    http://127.0.0.1:{port}/metrics",
        "Other commands reach it with this file, for example:",
        f"  proximity --env-file {env_file} dead-letters list",
    )
