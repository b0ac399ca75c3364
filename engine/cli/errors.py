"""How a command ends when its work could not be done: the message is the one line that is shown."""

from catalog.errors import AccountError, DatabaseUrlError, RedisUrlError, SecretKeyError
from connectors.errors import CertificatesError, NothingToTryError
from engine.kafka.errors import TooManyDeadLettersError, TooManyPartitionsError
from engine.process.errors import PortInUseError, SchemaError, SchemaRegistryError, ServiceDiedError


class CommandError(Exception):
    """A command could not do its work; the message says what and why, on one line."""


class CommandInterruptedError(CommandError):
    """Ctrl-C ended a command; the message says what was done before."""


# Errors that end a command like CommandError: their messages are for the user as they are.
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
