"""What is written with the prefix, in the environment and in a file, is a setting's name."""

import difflib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from dotenv.parser import parse_stream

# The names by which the project's own tests are told of servers; they are no settings.
TEST_PREFIX = "TEST_"
ENCODING = "utf-8-sig"  # an editor's byte order mark is no part of the first name
# What Kubernetes writes into every container for a service whose name begins like ours.
_LINK = re.compile(
    r"([A-Z0-9_]+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_LINKED_PORT = re.compile(r"([A-Z0-9_]+_)?PORT")
LINK_VALUE = re.compile(r"(tcp|udp|sctp)://")


class SourceError(Exception):
    """A source of settings cannot be used; the message says what is wrong, on one line."""


def read_env_file(path: Path) -> dict[str, str]:
    """The names of the file's lines, in upper case, with what is written behind them. Raises
    SourceError."""
    try:
        with path.open(encoding=ENCODING) as stream:
            bindings = list(parse_stream(stream))
    except FileNotFoundError:
        raise SourceError(f"--env-file {path}: no such file") from None
    except OSError as error:
        raise SourceError(f"--env-file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SourceError(f"--env-file {path}: not UTF-8") from None
    found: dict[str, str] = {}
    for binding in bindings:
        if binding.error or (binding.key is not None and binding.value is None):
            place = f"{path}:{_line_of(binding.original.string, binding.original.line)}"
            raise SourceError(f"--env-file {place}: accepted: KEY=value, a line each, # comments")
        if binding.key is not None:
            found[binding.key.upper()] = binding.value or ""
    return found


def _line_of(text: str, first: int) -> int:
    """Where the statement itself begins: blank lines before it belong to it."""
    blank = len(text) - len(text.lstrip())
    return first + text.count("\n", 0, blank)


def refuse_unknown(prefix: str, names: Collection[str], file: Mapping[str, str]) -> None:
    """Raise SourceError for a name with the prefix that is none of `names` (upper case)."""
    places: Iterable[tuple[str, Mapping[str, str]]] = (
        ("", {name.upper(): value for name, value in os.environ.items()}),
        (" (in the --env-file)", file),
    )
    for place, found in places:
        for variable, value in found.items():
            name = variable.removeprefix(prefix)
            if name == variable or name in names or _is_allowed(name, value):
                continue
            raise SourceError(f"{variable}{place}: no setting has this name{_meant(name, names)}")


def _is_allowed(name: str, value: str) -> bool:
    if name.startswith(TEST_PREFIX):
        return True
    if _LINKED_PORT.fullmatch(name):
        return LINK_VALUE.match(value) is not None
    return _LINK.fullmatch(name) is not None


def _meant(name: str, names: Collection[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    if close:
        return f"; did you mean PROXIMITY_{close[0]}?"
    return "; `proximity settings` prints them all"
