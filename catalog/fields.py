"""Reads the fields of requests and catalog files, and collects every fault with its place.

The types of fields are pydantic's; `read_fields` reads an object by a model of them.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from pydantic import AliasChoices, BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

# The zones of the package tzdata are the same on every host. A host's own directory may hold more
# (localtime, posix/..., right/...), which mean something else on another host.
ZONES = frozenset(files("tzdata").joinpath("zones").read_text("utf-8").split()) - {"Factory"}
# The default of a field that may be absent but not null. An absent field has no value.
ABSENT: Any = None
# What is wrong with values, by their places, such as `companies[0].venues[1].name`.
Faults = dict[str, str]
# Finds faults in the combination of fields.
Conflicts = Callable[[Mapping[str, Any]], Faults]


class Fields(BaseModel):
    """The fields that a request or a file gives for one kind of record.

    An attribute has the name of its column. Its alias is the name in requests, if that differs;
    further names follow in an AliasChoices. A field with a default may be absent.
    """


@functools.cache
def spellings(model: type[Fields]) -> dict[str, list[str]]:
    """Every name that requests may use for a field, by attribute; the main name comes first."""
    found = {}
    for name, field in model.model_fields.items():
        alias = field.validation_alias
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias or name]
        found[name] = [str(choice) for choice in choices]
    return found


def read_fields(
    model: type[Fields],
    given: Mapping[str, Any],
    *,
    place: str = "",
    faults: Faults,
) -> dict[str, Any]:
    """The accepted values of the given fields, by attribute.

    Notes each bad value, each field that is given under two names with different values, and each
    required field that is not given. Unknown names are ignored: see `note_unknown`.
    """
    values: dict[str, Any] = {}
    for attribute, names in spellings(model).items():
        field = model.model_fields[attribute]
        used = [name for name in names if name in given]
        if not used and field.is_required():
            faults[joined(place, names[0])] = "required, and not given"
        for name in used:
            try:
                value = _adapters(model)[attribute].validate_python(given[name])
            except ValidationError as error:
                faults[joined(place, name)] = _refusal(field, error)
                continue
            if values.setdefault(attribute, value) != value:
                message = f"given twice, also as {name}, with another value"
                faults[joined(place, names[0])] = message
    return values


def note_unknown(known: Sequence[str], given: Iterable[str], *, place: str, faults: Faults) -> None:
    """Note each unknown name, because a misspelt field would be ignored in silence."""
    for name in given:
        if name not in known:
            faults[joined(place, name)] = f"unknown field; accepted: {', '.join(known)}"


def joined(place: str, name: str) -> str:
    """The place of a field within an object."""
    return ".".join(filter(None, (place, name)))


@functools.cache
def _adapters(model: type[Fields]) -> dict[str, TypeAdapter[Any]]:
    return {
        name: TypeAdapter(field.rebuild_annotation()) for name, field in model.model_fields.items()
    }


def _refusal(field: FieldInfo, error: ValidationError) -> str:
    """What is wrong, in words that never quote the value, which may be a secret."""
    if field.description:
        return f"accepted: {field.description}"
    first = error.errors(include_url=False, include_input=False)[0]
    where = "".join(f"{part}: " for part in first["loc"])
    return where + str(first.get("ctx", {}).get("error", first["msg"]))
