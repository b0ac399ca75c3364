"""The errors of this package. Each message has one line, for people, and names what to change."""


class ProcessError(Exception):
    """The process cannot begin or go on.

    The command prints the message and exits with 1 (with 2 for SettingsError).
    """


class SettingsError(ProcessError):
    """A setting cannot be used; the message names it and what is accepted."""


class SchemaError(ProcessError):
    """The tables are not those of this version; the message says what to run."""


class SchemaRegistryError(ProcessError):
    """The schema registry does not answer, or gives a wrong answer.

    A role retries; a command ends.
    """
