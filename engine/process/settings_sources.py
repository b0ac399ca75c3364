"""Reads settings from overrides, the environment, the --env-file and secret files; shows them.

`PROXIMITY_<NAME>_FILE` names a file that holds the value of a secret, as Kubernetes, systemd and
Docker provide it. An unknown name is refused. Whatever is shown has no secrets.
"""

import difflib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import get_args
from urllib.parse import parse_qsl, urlencode, urlsplit

from dotenv.parser import parse_stream
from pydantic import SecretStr, ValidationError

from engine.process.errors import SettingsError
from engine.process.settings import PREFIX, Settings, unit_of, variable_name

HIDDEN = "********"
_SECRET_PARAMETERS = ("password", "sslpassword", "ssl_password", "sentinel_password")
# The prefix of the variables that name servers for the project's tests; they are no settings.
_TEST_PREFIX = "TEST_"
_ENCODING = "utf-8-sig"  # an editor's byte order mark is no part of the first name
# Variables that Kubernetes sets in every container for a service whose name begins with the prefix.
_LINK = re.compile(r"(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR))")
_LINK_VALUE = re.compile(r"(tcp|udp|sctp)://")


def load_settings(env_file: Path | None = None, **overrides: object) -> Settings:
    """Settings from overrides, the environment, then the file. Raises SettingsError."""
    written = {} if env_file is None else read_env_file(env_file)
    _refuse_unknown(written)
    if unknown := overrides.keys() - Settings.model_fields.keys():
        raise SettingsError(f"no setting has the name {min(unknown)}")
    files = {name: path for name, path in secret_files(written).items() if name not in overrides}
    overrides |= {name: _read_secret(name, path) for name, path in files.items()}
    try:
        # pydantic checks these at run time; its stubs know neither the keyword nor the names.
        return Settings(_env_file=env_file, _env_file_encoding=_ENCODING, **overrides)  # type: ignore[call-arg,arg-type]
    except ValidationError as error:
        raise SettingsError(_one_line(error, files)) from None


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
            text, first = binding.original.string, binding.original.line
            line = first + text.count("\n", 0, len(text) - len(text.lstrip()))  # after blank lines
            accepted = "accepted: KEY=value, a line each, # comments"
            raise SettingsError(f"--env-file {path}:{line}: {accepted}")
        if binding.key is not None:
            found[binding.key.upper()] = binding.value or ""
    return found


def secret_settings() -> Iterator[str]:
    """The names of the secret settings."""
    for name, field in Settings.model_fields.items():
        if SecretStr in (field.annotation, *get_args(field.annotation)):
            yield name


def file_variable(name: str) -> str:
    """The environment variable that names the file of a secret setting."""
    return variable_name(name) + "_FILE"


def secret_files(written: Mapping[str, str]) -> dict[str, Path]:
    """The file of each secret setting that a file provides.

    `written` has the lines of the --env-file; the environment overrides them. Raises SettingsError
    if a secret is given twice in one place.
    """
    found = {}
    for name in secret_settings():
        plain, file = variable_name(name), file_variable(name)
        for place in (_environment(), written):
            if plain in place and file in place:
                raise SettingsError(f"{file}: {plain} is set as well; set one of them")
            if file in place:
                found[name] = Path(place[file])
            if plain in place or file in place:
                break
    return found


def shown(value: object) -> str:
    """The text for a setting's value: only that a secret is set, and a URL without its password."""
    if isinstance(value, SecretStr):
        secret = value.get_secret_value()
        return shown_url(secret) if "://" in secret else HIDDEN * bool(secret)
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return "" if value is None else str(value)


def shown_url(url: str) -> str:
    """The URL without its password. A text that is no valid URL is hidden whole."""
    try:
        parts = urlsplit(url)
        for place in parts.netloc.rpartition("@")[2].split(","):  # several behind Sentinel
            _ = urlsplit(f"//{place}").port
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return HIDDEN
    if "@" in parts.path or "@" in parts.query or "@" in parts.fragment:
        return HIDDEN  # for example a password with a slash: its end is not certain
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _password = user.partition(":")
    # Without a colon the user may be a password in the wrong place.
    shown_user = f"{name}:{HIDDEN}" if colon else HIDDEN
    written = url.replace(parts.netloc, f"{shown_user}@{host}", 1) if at else url
    if any(key in _SECRET_PARAMETERS and given for key, given in query):
        hidden = [(key, HIDDEN if key in _SECRET_PARAMETERS else given) for key, given in query]
        return written.partition("?")[0] + "?" + urlencode(hidden, safe="*/,:")
    return written


def shown_servers(settings: Settings) -> dict[str, str]:
    """The servers of a process, for its first log line."""
    security = settings.kafka_security_protocol
    kafka = settings.kafka_bootstrap_servers
    return {
        "kafka": kafka if security == "PLAINTEXT" else f"{kafka} ({security})",
        "redis": shown(settings.redis_url),
        "database": shown(settings.database_url),
    }


def _environment() -> dict[str, str]:
    return {name.upper(): value for name, value in os.environ.items()}


def _read_secret(name: str, path: Path) -> str:
    """The content of the file, without line ends after it; an error never quotes it."""
    fault = f"{file_variable(name)}: {path}: "
    try:
        text = path.read_bytes().decode().rstrip("\r\n")
    except (OSError, ValueError) as error:
        raise SettingsError(fault + (getattr(error, "strerror", None) or "not UTF-8")) from None
    if not text:
        raise SettingsError(f"{fault}the file is empty")
    return text


def _one_line(error: ValidationError, files: Collection[str]) -> str:
    faults = []
    for fault in error.errors(include_url=False):
        message = fault["msg"].removeprefix("Value error, ")
        if fault["loc"]:
            name, given = str(fault["loc"][0]), fault["input"]
            named = file_variable(name) if name in files else variable_name(name)
            if (unit := unit_of(name)) and fault["type"] != "value_error":
                number = f"{given:g}" if isinstance(given, float) else given
                message = f"{number}: {message} {unit}"
            message = f"{named}: {message}"
            if isinstance(given, str) and _LINK_VALUE.match(given):
                message += (
                    "; Kubernetes sets this for a service of that name: enableServiceLinks: false"
                )
        faults.append(message)
    return "; ".join(faults)


def _refuse_unknown(file: Mapping[str, str]) -> None:
    """Raise SettingsError for a variable with the prefix that names no setting."""
    names = {variable_name(name) for name in Settings.model_fields}
    names |= {file_variable(name) for name in secret_settings()}
    for place, found in (("", _environment()), (" (in the --env-file)", file)):
        for variable, value in found.items():
            name = variable.removeprefix(PREFIX)
            if variable == name or variable in names or name.startswith(_TEST_PREFIX):
                continue
            if not _LINK.fullmatch(name) and not _LINK_VALUE.match(value):
                close = difflib.get_close_matches(variable, names, n=1, cutoff=0.85)
                meant = f"did you mean {close[0]}?" if close else "`proximity settings` prints all"
                raise SettingsError(f"{variable}{place}: no setting has this name; {meant}")
