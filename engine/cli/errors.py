"""How a command ends when its work could not be done: the message is the one line that is shown."""


class CommandError(Exception):
    """A command could not do its work; the message says what and why, on one line."""


class CommandInterruptedError(CommandError):
    """Ctrl-C ended a command; the message says what was done before."""
