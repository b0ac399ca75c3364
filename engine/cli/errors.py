"""The errors that end a command; the message is the one line that is shown."""

from catalog.errors import AccountError, DatabaseUrlError, RedisUrlError, SecretKeyError
from connectors.errors import CertificatesError, NothingToTryError
from engine.kafka.errors import TooManyDeadLettersError, TooManyPartitionsError
from engine.process.errors import PortInUseError, SchemaError, SchemaRegistryError, ServiceDiedError


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
    TooManyPartitionsError,
)
