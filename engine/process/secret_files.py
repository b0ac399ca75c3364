"""Secrets from files, as Kubernetes, systemd and Docker provide them.

`PROXIMITY_<NAME>_FILE` names a file that holds the value of `PROXIMITY_<NAME>`.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

from pydantic import SecretStr

from engine.process.errors import SettingsError
from engine.process.settings import Settings, variable_name

_SUFFIX = "_FILE"
_MOST_BYTES = 65_536


def secret_settings() -> Iterator[str]:
    """The names of the secret settings."""
    for name, field in Settings.model_fields.items():
        if SecretStr in (field.annotation, *get_args(field.annotation)):
            yield name


def file_variable(name: str) -> str:
    """The environment variable that names the file of a secret setting."""
    return variable_name(name) + _SUFFIX


def secret_files(written: Mapping[str, str]) -> dict[str, Path]:
    """The file of each secret setting that a file provides.

    `written` has the lines of the --env-file; the environment overrides them. Raises SettingsError
    if a secret is given twice in one place.
    """
    found = {}
    environment = {name.upper(): value for name, value in os.environ.items()}
    for name in secret_settings():
        for place in (environment, written):
            plain, file = variable_name(name), file_variable(name)
            if plain in place and file in place:
                raise SettingsError(f"{file}: {plain} is set as well; set one of them")
            if file in place:
                found[name] = Path(place[file])
            if plain in place or file in place:
                break
    return found


def read_secret(name: str, path: Path) -> str:
    """The content of the file, without line ends after it.

    Raises SettingsError, which never quotes the content.
    """
    fault = f"{file_variable(name)}: {path}: "
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no name of a file"
        raise SettingsError(fault + str(reason)) from None
    if len(content) > _MOST_BYTES:
        raise SettingsError(f"{fault}more than {_MOST_BYTES} bytes, which is no secret")
    try:
        text = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise SettingsError(f"{fault}not UTF-8") from None
    if not text:
        raise SettingsError(f"{fault}the file is empty")
    return text
