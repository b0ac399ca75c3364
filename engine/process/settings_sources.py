"""Reads settings from overrides, the environment, the --env-file and secret files; shows them.

`PROXIMITY_<NAME>_FILE` names a file that holds the value of a secret, as Kubernetes, systemd and
Docker provide it. An unknown name is refused. Whatever is shown has no secrets.
"""

import difflib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, get_args

from dotenv.parser import parse_stream
from pydantic import SecretStr, ValidationError

from engine.process.errors import SettingsError
from engine.process.settings import PREFIX, Settings, unit_of, variable_name

HIDDEN = "********"
# The prefix of the variables that name servers for the project's tests; they are no settings.
_OF_TESTS = f"{PREFIX}TEST_"


class GivenSetting(NamedTuple):
    """The text that a setting has, the variable that gives it, and where: environment or a file."""

    text: str
    variable: str
    source: str


def load_settings(env_file: Path | None = None, **overrides: object) -> Settings:
    """Settings from overrides, the environment, then the file. Raises SettingsError."""
    given = given_settings(env_file)
    values: dict[str, object] = {name: each.text for name, each in given.items()}
    try:
        return Settings.model_validate(values | overrides)
    except ValidationError as error:
        raise SettingsError(_one_line(error, given)) from None


def given_settings(env_file: Path | None) -> dict[str, GivenSetting]:
    """The settings in the environment and in the file, by name. Raises SettingsError."""
    plain = {variable_name(name): name for name in Settings.model_fields}
    of_files = {file_variable(name): name for name in secret_settings()}
    environment = {name.upper(): value for name, value in os.environ.items()}
    places = {"environment": environment}
    if env_file is not None:
        places[str(env_file)] = _read_env_file(env_file)
    found: dict[str, GivenSetting] = {}
    for place, variables in places.items():
        here: dict[str, GivenSetting] = {}
        for variable, text in variables.items():
            name = plain.get(variable) or of_files.get(variable)
            if name is None:
                _refuse_unknown(variable, {*plain, *of_files}, place)
            elif name in here:
                other = f"{variable_name(name)} is set as well; set one of them"
                raise SettingsError(f"{file_variable(name)}: {other}")
            else:
                here[name] = GivenSetting(text, variable, place)
        found = here | found  # what the environment says counts
    for name, each in found.items():
        if each.variable in of_files:
            found[name] = each._replace(text=_read_secret(each), source=each.text)
    return found


def secret_settings() -> Iterator[str]:
    """The names of the secret settings."""
    for name, field in Settings.model_fields.items():
        if SecretStr in (field.annotation, *get_args(field.annotation)):
            yield name


def file_variable(name: str) -> str:
    """The environment variable that names the file of a secret setting."""
    return variable_name(name) + "_FILE"


def shown(value: object) -> str:
    """The text for a setting's value: only that a secret is set, and a URL without its password."""
    if isinstance(value, SecretStr):
        secret = value.get_secret_value()
        return shown_url(secret) if "://" in secret else HIDDEN * bool(secret)
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return "" if value is None else str(value)


def shown_url(url: str) -> str:
    """The URL without its login, and without the query if a password is in it."""
    address, question, query = url.partition("?")
    if "@" in query:
        return HIDDEN  # perhaps of a password with a question mark: its end is not certain
    scheme, _, rest = address.partition("://")
    _, at, host = rest.rpartition("@")
    login = HIDDEN if at else ""
    shown_query = HIDDEN if "password" in query else query
    return f"{scheme}://{login}{at}{host}{question}{shown_query}"


def shown_servers(settings: Settings) -> dict[str, str]:
    """The servers of a process, for its first log line."""
    security = settings.kafka_security_protocol
    kafka = settings.kafka_bootstrap_servers
    return {
        "kafka": kafka if security == "PLAINTEXT" else f"{kafka} ({security})",
        "redis": shown(settings.redis_url),
        "database": shown(settings.database_url),
    }


def _read_env_file(path: Path) -> dict[str, str]:
    try:
        with path.open(encoding="utf-8-sig") as stream:  # an editor may write a byte order mark
            bindings = list(parse_stream(stream))
    except OSError as error:
        raise SettingsError(f"--env-file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"--env-file {path}: not UTF-8") from None
    for binding in bindings:
        if binding.error or (binding.key is not None and binding.value is None):
            text, first = binding.original.string, binding.original.line
            line = first + text.count("\n", 0, len(text) - len(text.lstrip()))  # after blank lines
            accepted = "accepted: KEY=value, a line each, # comments"
            raise SettingsError(f"--env-file {path}:{line}: {accepted}")
    return {each.key.upper(): each.value or "" for each in bindings if each.key is not None}


def _read_secret(given: GivenSetting) -> str:
    """The content of the file, without line ends after it; an error never quotes it."""
    try:
        text = Path(given.text).read_bytes().decode().rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise SettingsError(f"{given.variable}: {given.text}: {reason}") from None
    if not text:
        raise SettingsError(f"{given.variable}: {given.text}: the file is empty")
    return text


def _one_line(error: ValidationError, given: Mapping[str, GivenSetting]) -> str:
    faults = []
    for fault in error.errors(include_url=False):
        message = fault["msg"].removeprefix("Value error, ")
        if fault["loc"]:
            name, value = str(fault["loc"][0]), fault["input"]
            named = given[name].variable if name in given else variable_name(name)
            if (unit := unit_of(name)) and fault["type"] != "value_error":
                number = f"{value:g}" if isinstance(value, float) else value
                message = f"{number}: {message} {unit}"
            message = f"{named}: {message}"
        faults.append(message)
    return "; ".join(faults)


def _refuse_unknown(variable: str, names: set[str], place: str) -> None:
    """Raise SettingsError for a variable with the prefix that names no setting."""
    if variable.startswith(PREFIX) and not variable.startswith(_OF_TESTS):
        close = difflib.get_close_matches(variable, names, n=1, cutoff=0.85)
        meant = f"did you mean {close[0]}?" if close else "`proximity settings` prints all"
        raise SettingsError(f"{variable} ({place}): no setting has this name; {meant}")
