"""The errors of this package. Each message has one line, for people, and names what to change."""


class ProcessError(Exception):
    """The process cannot begin or go on.

    The command prints the message and exits with 1 (with 2 for SettingsError).
    """


class SettingsError(ProcessError):
    """A setting cannot be used; the message names it and what is accepted."""


class SchemaError(ProcessError):
    """The tables are not those of this version; the message says what to run."""


class PortInUseError(ProcessError):
    """A port cannot be opened; the message says which, and which setting chooses another."""


class ServiceDiedError(ProcessError):
    """A background service ended before it was cancelled; the message names the service."""


class SchemaRegistryError(ProcessError):
    """The schema registry does not answer, or gives a wrong answer.

    A role retries; a command ends.
    """
