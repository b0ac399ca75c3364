"""Reads an object by a model of its fields, and collects every fault with its place."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from catalog.fields.reader import Schema

_LONGEST_QUOTE = 60
_MISSING = "required, and not given"
# Finds faults in the combination of fields, as (field, message) pairs.
Conflicts = Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]]
# The default of a field that may be absent but not null. An absent field has no value.
ABSENT: Any = None
# The value of a secret field is never quoted, neither in a message nor in the model's repr.
SECRET = Field(repr=False, json_schema_extra={"writeOnly": True})


@dataclass(frozen=True)
class FieldFault:
    """A message about a value, and its place in the form `companies[0].venues[1].name`."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


class Faults(list[FieldFault]):
    """The faults found so far."""

    def note(self, place: str, message: str, *, value: Any = None) -> None:
        """Add a fault. A value other than None is quoted, shortened."""
        quoted = "" if value is None else f"{_quote(value)}: "
        self.append(FieldFault(place, quoted + message))

    def note_conflicts(self, place: str, conflicts: Iterable[tuple[str, str]]) -> None:
        """Add the faults in the combination of fields, as (field, message) pairs.

        A field that already has a fault of its own is left out.
        """
        known = {fault.place for fault in self}
        for name, message in conflicts:
            if joined(place, name) not in known:
                self.note(joined(place, name), message)


class Fields(BaseModel):
    """The fields that a request or a file gives for one kind of record.

    An attribute has the name of its column. Its alias is the name in requests, if that differs;
    further names follow in an AliasChoices. A field with a default may be absent.
    """

    model_config = ConfigDict(extra="ignore")

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Schema:
        """The schema, with each of a field's names as a property."""
        schema: Schema = handler.resolve_ref_schema(handler(core))
        for name, *others in spellings(cls).values():
            for other in others:
                note = f"Another name of {name}; if both are given they must be equal."
                schema["properties"][other] = schema["properties"][name] | {"description": note}
            if others and name in schema.get("required", ()):
                schema["required"].remove(name)
                either = {"anyOf": [{"required": [each]} for each in (name, *others)]}
                schema.setdefault("allOf", []).append(either)
        return schema


M = TypeVar("M", bound=Fields)


def required(*attributes: str) -> Callable[[type[M]], type[M]]:
    """Make inherited fields required in a model."""

    def mark(model: type[M]) -> type[M]:
        for attribute in attributes:
            model.model_fields[attribute].default = PydanticUndefined
        model.model_rebuild(force=True)
        return model

    return mark


@cache
def spellings(model: type[Fields]) -> dict[str, list[str]]:
    """Every name that requests may use for a field, by attribute; the main name comes first."""
    return {name: _names(name, field) for name, field in model.model_fields.items()}


def read_fields(
    model: type[Fields],
    given: Mapping[str, Any],
    *,
    place: str = "",
    faults: Faults,
    require: bool = True,
) -> dict[str, Any]:
    """The accepted values of the given fields, by attribute.

    Notes each bad value, each field that is given under two names with different values, and, if
    `require`, each required field that is not given. Unknown names are ignored: see `note_unknown`.
    """
    values, wrong = _read(model, given)
    for attribute, (name, *others) in spellings(model).items():
        if name in given and not given.keys().isdisjoint(others):
            second, also_wrong = _read(model, {n: given[n] for n in given if n != name})
            wrong = also_wrong | wrong
            if (
                attribute in second
                and values.setdefault(attribute, second[attribute]) != second[attribute]
            ):
                wrong.setdefault(name, f"given twice, also as {others[0]}, with another value")
    for name, message in wrong.items():
        if require or message != _MISSING:
            faults.note(joined(place, name), message)
    return values


def note_unknown(known: Sequence[str], given: Iterable[str], *, place: str, faults: Faults) -> None:
    """Note each unknown name, because a misspelt field would be ignored in silence."""
    for name in given:
        if name not in known:
            faults.note(joined(place, name), f"unknown field; accepted: {', '.join(known)}")


def joined(place: str, name: str) -> str:
    """The place of a field within an object."""
    return f"{place}.{name}" if place else name


def _names(attribute: str, field: FieldInfo) -> list[str]:
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    return [str(alias or attribute)]


def _read(model: type[Fields], given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The accepted values by attribute, and the faults of the others by name."""
    try:
        read = model.model_validate(given)
    except ValidationError as error:
        wrong = _messages(model, given, error)
        return _one_by_one(model, given), wrong
    return {n: getattr(read, n) for n in model.model_fields if n in read.model_fields_set}, {}


def _one_by_one(model: type[Fields], given: Mapping[str, Any]) -> dict[str, Any]:
    read = model.model_construct()
    for attribute, names in spellings(model).items():
        for name in names:
            if name in given and attribute not in read.model_fields_set:
                with suppress(ValidationError):
                    model.__pydantic_validator__.validate_assignment(read, attribute, given[name])
    return {
        name: getattr(read, name) for name in model.model_fields if name in read.model_fields_set
    }


def _messages(
    model: type[Fields], given: Mapping[str, Any], refused: ValidationError
) -> dict[str, str]:
    """What each refused field accepts, by name.

    Only this function turns pydantic's errors into the interface's.
    """
    fields = {n: model.model_fields[a] for a, names in spellings(model).items() for n in names}
    messages: dict[str, str] = {}
    for error in refused.errors(include_url=False):
        name = str(error["loc"][0])
        message = _MISSING
        if name in given:
            cause = error.get("ctx", {}).get("error")
            message = str(cause) if cause else f"accepted: {fields[name].description}"
            if fields[name].repr:
                message = f"{_quote(given[name])}: {message}"
        messages.setdefault(name, message)
    return messages


def _quote(value: Any) -> str:
    try:
        quoted = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "nested too deeply"
    quoted = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in quoted[: _LONGEST_QUOTE + 1])
    return quoted if len(quoted) <= _LONGEST_QUOTE else quoted[: _LONGEST_QUOTE - 1] + "…"
