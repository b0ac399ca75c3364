"""What all answers have in common: the types of fields, the models' base, and the errors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from rules.model import Reason

Id = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
# Null in SQL, empty in answers.
Text = Annotated[str, BeforeValidator(lambda text: text or "")]
Record = dict[str, Any]
ReasonName = Annotated[str, Field(json_schema_extra={"enum": [each.value for each in Reason]})]
ZoneName = Literal["immediate", "near", "far", "unknown"]


def timestamp(instant: datetime) -> str:
    """The instant in the interface's format, in its own offset: 2026-11-20T10:00:00+0100."""
    text = instant.isoformat(timespec="seconds")
    return text[:-3] + text[-2:]


Timestamp = Annotated[
    str,
    BeforeValidator(lambda value: timestamp(value) if isinstance(value, datetime) else value),
    Field(
        pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}$", examples=["2026-11-20T10:00:00+0100"]
    ),
]
# Made of epoch seconds.
EpochTime = Annotated[
    Timestamp, BeforeValidator(lambda seconds: datetime.fromtimestamp(seconds, UTC))
]
TimeOfDay = Annotated[str, Field(pattern=r"^\d\d:\d\d$", examples=["09:00"])]


class Answer(BaseModel):
    """The base of answers. Made of dictionaries, or of objects by their attributes."""

    model_config = ConfigDict(extra="forbid", from_attributes=True)


class NamedAnswer(Answer):
    """A record; alone where another one refers to it."""

    id: Id
    name: str


class DoneAnswer(Answer):
    status: Literal["success"] = "success"
    code: Literal[200] = 200


class ErrorAnswer(Answer):
    """Every error; `fields` names each bad field with what it accepts."""

    status: Literal["error"]
    message: str
    code: int
    fields: dict[str, str] = Field(default_factory=dict)


class SignInErrorAnswer(Answer):
    status: Literal["error"]
    error_message: str
    code: int
    fields: dict[str, str] = Field(default_factory=dict)


@dataclass(eq=False)
class ApiError(Exception):
    """A request that is answered with an error.

    `fields` names what is wrong by place, as `tags[0].name`, each with what is accepted.
    """

    status: int
    message: str
    fields: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] | None = None

    def answer(self, scope: Mapping[str, Any]) -> JSONResponse:
        """The answer to a request; for signing in the message has a name of its own."""
        signs_in = (scope["method"], scope["path"]) == ("POST", "/v2/auth")
        text = "error_message" if signs_in else "message"
        body: Record = {"status": "error", text: self.message, "code": self.status}
        if self.fields:
            body["fields"] = dict(self.fields)
        return JSONResponse(body, self.status, self.headers)


def bad_fields(fields: Mapping[str, str]) -> ApiError:
    """Some fields are missing or not accepted."""
    return ApiError(400, f"not accepted: {', '.join(fields)}", fields=fields)


def forbidden(area: str, level: int) -> ApiError:
    """The account's level in an area is too low."""
    return ApiError(403, f"needs level {level} in the permission area {area}")


def not_found(what: str) -> ApiError:
    """The record does not exist or is another company's; the answer is the same."""
    return ApiError(404, f"no such {what}")


def unavailable(message: str) -> ApiError:
    """The service cannot answer now; the client may try again in a second."""
    return ApiError(503, message, headers={"retry-after": "1"})
