"""What short commands share: quiet logs, and one line for a Kafka that does not serve."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from engine.cli.errors import CommandError
from engine.process.settings import Settings


def quiet_logs(settings: Settings) -> None:
    """Only warnings on standard error, unless LOG_LEVEL was set by hand."""
    from engine.process.logs import configure_logs

    if "log_level" not in settings.model_fields_set:
        settings = settings.model_copy(update={"log_level": "warning"})
    configure_logs(settings)
    if settings.log_level != "debug":
        # What it logs as errors it raises, too, and then the command says it, in one line.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


_LONG = 4.0


@contextmanager
def kafka_failures(settings: Settings, done: Callable[[], str]) -> Iterator[None]:
    """Turn Kafka's errors and time-outs into a CommandError; `done` says what was done before."""
    from aiokafka.errors import KafkaError

    try:
        yield
    except (KafkaError, TimeoutError) as error:
        where = settings.kafka_bootstrap_servers
        why = kafka_fault(settings, error)
        raise CommandError(f"Kafka at {where} does not serve: {why}; {done()}") from None


async def first_contact(settings: Settings, work: Coroutine[Any, Any, None]) -> None:
    """`work`, the first to ask Kafka; once that takes long, what is wrong is looked for meanwhile.

    Raises CommandError for what no waiting mends, and what `work` raises.
    """
    from engine.kafka.diagnosis import diagnose

    task = asyncio.create_task(work)
    try:
        if not (await asyncio.wait([task], timeout=_LONG))[0]:
            found = await asyncio.to_thread(diagnose, settings)
            if found is not None and found.certain and not task.done():
                raise CommandError(f"Kafka does not serve: {found.message}")
        await task
    finally:
        task.cancel()
        await asyncio.wait([task])


def kafka_fault(settings: Settings, error: Exception) -> str:
    """What a look at the addresses finds, where the error itself says only that it failed."""
    from aiokafka.errors import KafkaConnectionError

    from engine.kafka.diagnosis import diagnose

    found = diagnose(settings) if isinstance(error, KafkaConnectionError | TimeoutError) else None
    return found.message if found else str(error).partition("\n")[0] or type(error).__name__
