"""What short commands share: quiet logs, and one line for a Kafka that does not serve."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.commands import CommandError
from engine.settings import Settings


def quiet_logs(settings: Settings) -> None:
    """Only warnings on standard error, unless LOG_LEVEL was set by hand."""
    from engine.logs import configure_logs

    if "log_level" not in settings.model_fields_set:
        settings = settings.model_copy(update={"log_level": "warning"})
    configure_logs(settings)
    if settings.log_level != "debug":
        # What it logs as errors it raises, too, and then the command says it, in one line.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


@contextmanager
def kafka_failures(settings: Settings, done: Callable[[], str]) -> Iterator[None]:
    """Turn Kafka's errors and time-outs into a CommandError; `done` says what was done before."""
    from aiokafka.errors import KafkaError

    try:
        yield
    except (KafkaError, TimeoutError) as error:
        what = str(error) or type(error).__name__
        where = settings.kafka_bootstrap_servers
        raise CommandError(f"Kafka at {where} does not serve: {what}; {done()}") from None
