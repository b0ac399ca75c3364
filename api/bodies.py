"""What requests have in common: parameters of paths and queries, and the reading of bodies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from fastapi import Depends, Path, Query
from pydantic import Field
from starlette.requests import Request

from api.answers import ApiError, bad_fields
from catalog.fields import Faults, Fields, read_fields
from catalog.inputs import INT64, NUMBER

VENUE: Any = Path(alias="id", ge=1, le=INT64, description="The venue.")
RECORD: Any = Path(alias="uid", ge=1, le=INT64, description="The record in the venue.")
OWN: Any = Path(alias="id", ge=1, le=INT64, description="The record.")
VenueId = Annotated[int, VENUE]
RecordId = Annotated[int, RECORD]
OwnId = Annotated[int, OWN]
FromZero = Annotated[int, Field(ge=0, le=INT64)]
FromOne = Annotated[int, NUMBER, Field(ge=1, le=INT64)]  # also an id
Searched = Annotated[str, Field(max_length=255, pattern=r"^[^\x00]*$")]


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Which records a list has, and in which order: the query parameters of every list."""

    limit: Annotated[
        FromOne | None, Query(description="The most records of the answer; default: all.")
    ] = None
    after: Annotated[
        FromZero,
        Query(description="Only records with a greater id: the last id of the previous page."),
    ] = 0
    search: Annotated[
        Searched,
        Query(
            description="Only records with this text in a name, address, uuid, value, udid, email, "
            "action."
        ),
    ] = ""
    active: Annotated[
        bool | None, Query(description="Only records that are active, or that are not.")
    ] = None
    sort: Annotated[
        str,
        Query(
            pattern="^-?[a-z_]{1,32}$",
            description="A field to sort by, descending after a minus: `name`, `-id`. The answer "
            "then has at most 500 records, 50 of campaigns; `offset` leads to the next ones.",
        ),
    ] = "id"
    offset: Annotated[FromZero, Query(description="How many records to skip.")] = 0


LISTING: Any = Depends(Listing)
DryRun = Annotated[
    bool, Query(alias="dry", description="Only check the body: answer as usual, and store nothing.")
]
MOST_LISTED = 1000
# The models of all bodies, for the OpenAPI document.
BODIES: dict[str, type[Fields]] = {}
_ACCEPTED = "accepted: a JSON object in UTF-8, its numbers of 64 bits"
_CLOSE = {"connection": "close"}


def accepts(model: type[Fields], example: Any, *, or_list: bool = False) -> dict[str, Any]:
    """The `openapi_extra` of an operation whose body the caller reads (Caller.values).

    FastAPI itself would read the body before it has checked the session. If the example is a list,
    the body is one; with `or_list` it may be one, too.
    """
    BODIES[model.__name__] = model
    one: dict[str, Any] = {"$ref": f"#/components/schemas/{model.__name__}"}
    several = {"type": "array", "items": one, "minItems": 1, "maxItems": MOST_LISTED}
    schema = several if isinstance(example, list) else {"anyOf": [one, several]} if or_list else one
    content = {"application/json": {"schema": schema, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


async def read_json(request: Request, longest: int) -> Any:
    """The JSON of the body. Raises ApiError: 415, 413 over `longest` bytes, 400."""
    kind = request.headers.get("content-type", "application/json").partition(";")[0]
    if kind.strip().lower() != "application/json":
        raise ApiError(415, "the body must be application/json", headers=_CLOSE)
    raw = await read_bytes(request, longest)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        message, fault = "the body is empty", "required"
        if raw.strip():
            message = "the body is not JSON"
            fault = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise ApiError(400, message, fields={"body": f"{fault}; {_ACCEPTED}"}) from None


async def read_bytes(request: Request, longest: int) -> bytes:
    """The body. Raises ApiError 413 past `longest` bytes."""
    raw = bytearray()
    async for piece in request.stream():
        raw += piece
        if len(raw) > longest:
            raise ApiError(413, f"the body is larger than {longest} bytes", headers=_CLOSE)
    return bytes(raw)


def accepted(model: type[Fields], body: Any, *, place: str = "") -> dict[str, Any]:
    """The values of the fields in an object, by attribute. Raises ApiError, 400 with every fault.

    Names that `model` does not know are ignored, because clients send back the records that they
    have read.
    """
    if not isinstance(body, dict):
        raise ApiError(400, "the body is not a JSON object", fields={"body": _ACCEPTED})
    return _accepted(model, {place: body})[0]


def accepted_list(model: type[Fields], body: Any) -> list[dict[str, Any]]:
    """As `accepted`, for a list of objects. The names of faults begin with an index: [3].name."""
    good = isinstance(body, list) and 1 <= len(body) <= MOST_LISTED
    if not good or not all(isinstance(each, dict) for each in body):
        raise bad_fields({"body": f"accepted: an object, or a list of 1 to {MOST_LISTED} objects"})
    return _accepted(model, {f"[{number}]": each for number, each in enumerate(body)})


def _accepted(model: type[Fields], objects: Mapping[str, Any]) -> list[dict[str, Any]]:
    faults = Faults()
    found = [read_fields(model, objects[at], place=at, faults=faults) for at in objects]
    refuse(faults)
    return found


def refuse(faults: Faults) -> None:
    """Raise ApiError 400 if there are faults."""
    if faults:
        raise bad_fields(faults)
