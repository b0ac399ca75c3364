"""Reads settings from overrides, the environment, the --env-file and secret files.

An unknown name is refused.
"""

import difflib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from dotenv.parser import parse_stream
from pydantic import ValidationError

from engine.process.errors import SettingsError
from engine.process.secret_files import (
    file_variable,
    read_secret,
    secret_files,
    secret_settings,
)
from engine.process.settings import PREFIX, Settings, variable_name

# The prefix of the variables that name servers for the project's tests; they are no settings.
_TEST_PREFIX = "TEST_"
_ENCODING = "utf-8-sig"  # an editor's byte order mark is no part of the first name
# Variables that Kubernetes sets in every container for a service whose name begins with the prefix.
_LINK = re.compile(
    r"([A-Z0-9_]+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_LINKED_PORT = re.compile(r"([A-Z0-9_]+_)?PORT")
_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://")


def load_settings(env_file: Path | None = None, **overrides: object) -> Settings:
    """Settings from overrides, the environment, then the file. Raises SettingsError."""
    written = {} if env_file is None else read_env_file(env_file)
    _refuse_unknown(_known_names(), written)
    files = {name: path for name, path in secret_files(written).items() if name not in overrides}
    overrides |= {name: read_secret(name, path) for name, path in files.items()}
    try:
        # pydantic checks these at run time; its stubs know neither the keyword nor the names.
        return Settings(_env_file=env_file, _env_file_encoding=_ENCODING, **overrides)  # type: ignore[call-arg,arg-type]
    except ValidationError as error:
        raise SettingsError(_one_line(error, files)) from None


def _known_names() -> set[str]:
    """The names that may follow the prefix, in upper case."""
    of_files = {file_variable(name).removeprefix(PREFIX) for name in secret_settings()}
    return of_files | {name.upper() for name in Settings.model_fields}


def _one_line(error: ValidationError, files: Collection[str]) -> str:
    faults = []
    for fault in error.errors(include_url=False):
        message = fault["msg"].removeprefix("Value error, ")
        if fault["loc"]:
            name = str(fault["loc"][0])
            named = file_variable(name) if name in files else variable_name(name)
            message = f"{named}: {message}"
            if isinstance(fault["input"], str) and _LINK_VALUE.match(fault["input"]):
                message += (
                    "; Kubernetes sets this for a service of that name: enableServiceLinks: false"
                )
        faults.append(message)
    return "; ".join(faults)


def read_env_file(path: Path) -> dict[str, str]:
    """The names in the file, in upper case, with their values. Raises SettingsError."""
    try:
        with path.open(encoding=_ENCODING) as stream:
            bindings = list(parse_stream(stream))
    except FileNotFoundError:
        raise SettingsError(f"--env-file {path}: no such file") from None
    except OSError as error:
        raise SettingsError(f"--env-file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"--env-file {path}: not UTF-8") from None
    found: dict[str, str] = {}
    for binding in bindings:
        if binding.error or (binding.key is not None and binding.value is None):
            place = f"{path}:{_line_of(binding.original.string, binding.original.line)}"
            raise SettingsError(f"--env-file {place}: accepted: KEY=value, a line each, # comments")
        if binding.key is not None:
            found[binding.key.upper()] = binding.value or ""
    return found


def _line_of(text: str, first: int) -> int:
    """The line on which the statement itself begins, after any blank lines."""
    blank = len(text) - len(text.lstrip())
    return first + text.count("\n", 0, blank)


def _refuse_unknown(names: Collection[str], file: Mapping[str, str]) -> None:
    """Raise SettingsError for a name with the prefix that is not in `names` (upper case)."""
    places: Iterable[tuple[str, Mapping[str, str]]] = (
        ("", {name.upper(): value for name, value in os.environ.items()}),
        (" (in the --env-file)", file),
    )
    for place, found in places:
        for variable, value in found.items():
            name = variable.removeprefix(PREFIX)
            if name == variable or name in names or _is_allowed(name, value):
                continue
            raise SettingsError(f"{variable}{place}: no setting has this name{_meant(name, names)}")


def _is_allowed(name: str, value: str) -> bool:
    if name.startswith(_TEST_PREFIX):
        return True
    if _LINKED_PORT.fullmatch(name):
        return _LINK_VALUE.match(value) is not None
    return _LINK.fullmatch(name) is not None


def _meant(name: str, names: Collection[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    if close:
        return f"; did you mean {PREFIX}{close[0]}?"
    return "; `proximity settings` prints them all"
