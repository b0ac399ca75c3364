"""The ports that a process serves: opened at once, so that a taken one is known at its start."""

import socket

_BACKLOG = 2048


class PortInUseError(Exception):
    """A port cannot be opened; the message says which, and which setting chooses another."""


def listen(host: str, port: int, *, setting: str) -> socket.socket:
    """A listening TCP socket; port 0 takes any that is free. `setting` is named in the error.

    Raises PortInUseError.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, because asyncio turns off Nagle's delay (40 ms an answer) only for what says it is TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)  # only now is a port that another process has bound refused
    except OSError as error:
        listener.close()
        raise PortInUseError(
            f"cannot open {host}:{port}: {error.strerror}; "
            f"choose another with {setting} (0 for any)"
        ) from None
    return listener
