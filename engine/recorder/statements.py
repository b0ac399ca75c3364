"""The statements of the recorder, by name, from the .sql files beside this module."""

from functools import cache
from importlib.resources import files

_MARK = "-- name: "


@cache
def statements(dialect: str) -> dict[str, str]:
    """The statements of a dialect. In its file each begins with a line `-- name: <its name>`."""
    text = (files("engine.recorder") / "sql" / f"{dialect}.sql").read_text(encoding="utf-8")
    found = {}
    for part in text.split(_MARK)[1:]:
        name, _, statement = part.partition("\n")
        found[name.strip()] = statement.strip().removesuffix(";")
    return found
