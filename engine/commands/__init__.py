"""The commands, a file each. `register` adds a command to the application; heavy imports wait
until it is called."""


class CommandError(Exception):
    """A command could not do its work; the message says what and why, on one line."""


class CommandInterruptedError(CommandError):
    """Ctrl-C ended a command; the message says what was done before."""
