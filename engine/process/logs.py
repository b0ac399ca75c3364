"""Structured logs on standard error: JSON for machines, one readable line for a terminal."""

import logging
import sys
import time

import structlog

from catalog.plain_text import for_terminal
from engine.process.settings import Settings

_REPEAT_SECONDS = 60.0
_HTTP = ("httpx", "httpcore")  # their lines have urls
_QUIET = (
    "aiokafka",
    "uvicorn",
    "asyncio",
    "sqlalchemy",
    "aiosqlite",
    "alembic",
    "opentelemetry",
    *_HTTP,
)


class RepeatFilter(logging.Filter):
    """Passes the same message of a library once a minute.

    While a broker is down, aiokafka logs many times a second.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[tuple[str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is new. Messages are compared by their format, not their values."""
        if not record.name.startswith(_QUIET):
            return True
        key, now = (record.name, str(record.msg)), time.monotonic()
        is_due = now - self._last.get(key, float("-inf")) >= _REPEAT_SECONDS
        if is_due:
            self._last[key] = now
        return is_due


def configure_logs(settings: Settings) -> None:
    """Route structlog and the standard library's loggers to standard error."""
    json = settings.log_format == "json" or (
        settings.log_format == "auto" and not sys.stderr.isatty()
    )
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # (A traceback with the values of variables would show secrets.)
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    tail: list[structlog.typing.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        *([structlog.processors.JSONRenderer()] if json else [_harmless, plain]),
    ]
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=tail)
    )
    handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    for noisy in _QUIET:
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))


def _harmless(
    _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Escape text from outside, so that it neither controls the terminal nor fakes a line."""
    for name, value in event.items():
        if not isinstance(value, str):
            continue  # its repr, which is harmless
        lines = value.split("\n") if name == "exception" else [value]
        event[name] = "\n".join(map(for_terminal, lines))
    return event
