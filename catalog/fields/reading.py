"""Reads an object field by field, and collects every fault with its place."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.fields.reader import FieldError, Reader

_LONGEST_QUOTE = 60


@dataclass(frozen=True)
class Fault:
    """What is wrong, and where, as `companies[0].venues[1].name`."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of the interface.

    `attribute` is where the model keeps it; `also` are other names that requests use; `nullable`
    fields take null, which empties them, and those that may be `blank` an empty text, too; the
    value of a `secret` one is never quoted.
    """

    name: str
    read: Reader
    attribute: str = ""
    also: tuple[str, ...] = ()
    required: bool = False
    nullable: bool = False
    blank: bool = False
    secret: bool = False

    @property
    def key(self) -> str:
        """The model's attribute."""
        return self.attribute or self.name


class Faults(list[Fault]):
    """The faults found so far."""

    def note(self, place: str, message: str, *, value: Any = None) -> None:
        """Add one; a value other than None is quoted, shortened."""
        quoted = "" if value is None else f"{_quote(value)}: "
        self.append(Fault(place, quoted + message))


def read_fields(
    fields: Sequence[Field],
    given: Mapping[str, Any],
    *,
    place: str,
    faults: Faults,
    require: bool = True,
) -> dict[str, Any]:
    """The values of the fields that are given and good, by attribute.

    Notes each bad one, each that is given under two names with values that differ, and, if
    `require`, each required one that is not given. Other names are left alone: see `note_unknown`.
    """
    values: dict[str, Any] = {}
    for field in fields:
        names = [name for name in (field.name, *field.also) if name in given]
        for name in names:
            _read_one(field, name, given[name], place, values, faults)
        if not names and field.required and require:
            faults.note(_at(place, field.name), "required, and not given")
    return values


def note_unknown(
    known: Sequence[str], given: Mapping[str, Any], *, place: str, faults: Faults
) -> None:
    """Note each name that is not known: a misspelt field would be ignored in silence."""
    for name in given:
        if name not in known:
            here = f"{place}.{name}" if place else name
            faults.note(here, f"unknown field; accepted: {', '.join(known)}")


def names_of(fields: Sequence[Field]) -> list[str]:
    """Every name under which the fields are accepted."""
    return [name for field in fields for name in (field.name, *field.also)]


def _read_one(
    field: Field, name: str, value: Any, place: str, values: dict[str, Any], faults: Faults
) -> None:
    """Read a value; the field may have been read already, under its other name."""
    try:
        emptied = field.nullable and (value is None or (field.blank and value == ""))
        read = None if emptied else field.read(value)
    except FieldError as error:
        message = str(error) if field.secret else f"{_quote(value)}: {error}"
        faults.note(_at(place, name), message)
        return
    if values.setdefault(field.key, read) != read:
        faults.note(_at(place, field.name), f"given twice, also as {name}, with another value")


def _at(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _quote(value: Any) -> str:
    try:
        quoted = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "nested too deeply"
    quoted = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in quoted[: _LONGEST_QUOTE + 1])
    return quoted if len(quoted) <= _LONGEST_QUOTE else quoted[: _LONGEST_QUOTE - 1] + "…"
