"""Readers of values: each converts a JSON value or refuses it, and has a JSON Schema."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BeforeValidator
from pydantic_core import CoreSchema, core_schema

Schema = dict[str, Any]


class FieldError(ValueError):
    """A value is refused; the message says what is accepted."""


@dataclass(frozen=True, eq=False)
class ValueReader:
    """Converts a value to its stored form, or raises FieldError. Annotates the fields of models.

    The error's message says what is accepted and never quotes the value, which may be a secret.
    Every value that `schema` accepts is accepted by `read` too, so that programs can rely on it.
    """

    read: Callable[[Any], Any]
    schema: Mapping[str, Any]

    def __call__(self, value: Any) -> Any:
        """The stored form of the value. Raises FieldError."""
        return self.read(value)

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        """For pydantic: validate with `read`."""
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, _core: Any, _handler: Any) -> Schema:
        """For pydantic: describe with `schema`."""
        return dict(self.schema)


def reader(**schema: Any) -> Callable[[Callable[[Any], Any]], ValueReader]:
    """A decorator that makes a function a ValueReader with this schema."""

    def described(read: Callable[[Any], Any]) -> ValueReader:
        return ValueReader(read, schema)

    return described


# An empty text and null both empty an optional field.
BLANK_IS_NULL = BeforeValidator(lambda value: None if value == "" else value)


def any_case(*words: str) -> str:
    """A pattern for one of the words in any case."""
    return "|".join("".join(_either(letter) for letter in word) for word in words)


def digits(lowest: int, highest: int, longest: int) -> str:
    """A pattern for the digits of `lowest` (0 or 1) to `highest`, at most `longest` of them."""
    text = str(highest)
    length = len(text)
    shorter = f"[1-9][0-9]{{0,{length - 2}}}" if lowest else f"[0-9]{{1,{length - 1}}}"
    choices = [shorter] if length > 1 else []
    for place, digit in enumerate(text):
        first = 0 if place else lowest
        if int(digit) > first:
            rest = length - place - 1
            tail = f"[0-9]{{{rest}}}" if rest else ""
            choices.append(f"{text[:place]}[{first}-{int(digit) - 1}]{tail}")
    return f"0{{0,{longest - length}}}(?:{'|'.join([*choices, text])})"


def _either(letter: str) -> str:
    return f"[{letter.upper()}{letter}]" if letter.isalpha() else letter
