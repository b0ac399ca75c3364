"""Builds answers: JSON bytes, the formats of values in them, and the models that describe them."""

from collections.abc import Iterable
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.responses import Response

from api.errors import ApiError

JSON = "application/json"
_DONE = orjson.dumps({"status": "success", "code": 200})
Record = dict[str, Any]
Id = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Text = Annotated[str, BeforeValidator(lambda text: text or "")]


def timestamp(instant: datetime) -> str:
    """The instant in the interface's format, in its own offset: 2026-11-20T10:00:00+0100."""
    text = instant.isoformat(timespec="seconds")
    return text[:-3] + text[-2:]


Timestamp = Annotated[
    str,
    BeforeValidator(timestamp),
    Field(
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}$", examples=["2026-11-20T10:00:00+0100"]
    ),
]
TimeOfDay = Annotated[str, Field(pattern=r"^\d\d:\d\d$", examples=["09:00"])]


class Answer(BaseModel):
    """Describes an answer in the OpenAPI document, under its class name without `Answer`.

    Records in lists are dictionaries, not instances, because many thousands are written at once.
    """

    model_config = ConfigDict(extra="forbid", from_attributes=True)


class ErrorAnswer(Answer):
    status: Literal["error"]
    message: str
    code: int
    fields: dict[str, str] = Field(default_factory=dict)


class AuthenticationErrorAnswer(Answer):
    status: Literal["error"]
    error_message: str
    code: int
    fields: dict[str, str] = Field(default_factory=dict)


class DoneAnswer(Answer):
    status: Literal["success"]
    code: int


def answer(content: Any, status: int = 200) -> Response:
    """The answer with a record or a list of records."""
    return Response(orjson.dumps(content), status, media_type=JSON)


def done() -> Response:
    """The answer to a deletion."""
    return Response(_DONE, media_type=JSON)


def error_answer(error: ApiError) -> Response:
    """The answer to a refused request."""
    return Response(orjson.dumps(error.body), error.status, error.headers, JSON)


def time_of_day(minute: int) -> str:
    """Minutes from midnight as HH:MM; 1440 is 24:00."""
    return f"{minute // 60:02}:{minute % 60:02}"


def fill_texts(records: Iterable[Record], model: type[Answer]) -> None:
    """Replace null by an empty text in the fields that `model` declares as texts."""
    texts = _texts(model)
    for record in records:
        for name in texts:
            if record.get(name, "") is None:
                record[name] = ""


@cache
def _texts(model: type[Answer]) -> list[str]:
    fields = model.model_fields.items()
    return [name for name, field in fields if field.annotation is str and field.is_required()]
