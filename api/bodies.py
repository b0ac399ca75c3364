"""What requests have in common: parameters of paths and queries, and the reading of bodies."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from fastapi import Depends, Path, Query
from starlette.requests import ClientDisconnect, Request

from api.answers import INT64, ApiError, bad_fields
from catalog.fields import Conflicts, Faults, Fields, read_fields

VenueId = Annotated[int, Path(alias="id", ge=1, le=INT64, description="The venue.")]
RecordId = Annotated[int, Path(alias="uid", ge=1, le=INT64, description="The record in the venue.")]
OwnId = Annotated[int, Path(alias="id", ge=1, le=INT64, description="The record.")]


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Which records a list has, and in which order: the query parameters of every list."""

    limit: Annotated[
        int | None,
        Query(ge=1, le=INT64, description="The most records of the answer; default: all."),
    ] = None
    after: Annotated[
        int,
        Query(
            ge=0,
            le=INT64,
            description="Only records with a greater id: the last id of the previous page.",
        ),
    ] = 0
    search: Annotated[
        str,
        Query(
            max_length=255,
            pattern=r"^[^\x00]*$",
            description="Only records with this text in a name, address, uuid, value or udid.",
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
    offset: Annotated[int, Query(ge=0, le=INT64, description="How many records to skip.")] = 0


LISTING: Any = Depends(Listing)
DryRun = Annotated[
    bool, Query(alias="dry", description="Only check the body: answer as usual, and store nothing.")
]
MOST_LISTED = 1000
_BODY_SECONDS = 15.0  # for a body to arrive
_ACCEPTED = "accepted: a JSON object in UTF-8, its numbers of 64 bits"
_CLOSE = {"connection": "close"}


def accepts(
    model: type[Fields], example: dict[str, Any], *, listed: bool = False
) -> dict[str, Any]:
    """The `openapi_extra` of an operation whose body the caller reads (AuthorizedCaller.values).

    With `listed` the body may be a list, too. FastAPI itself would read the body before it has
    checked the session.
    """
    schema: dict[str, Any] = {"$ref": f"#/components/schemas/{model.__name__}"}
    if listed:
        array = {"type": "array", "items": schema, "minItems": 1, "maxItems": MOST_LISTED}
        schema = {"anyOf": [schema, array]}
    content = {"application/json": {"schema": schema, "example": example}}
    return {"requestBody": {"required": True, "content": content}}


def accepts_list(model: type[Fields], example: dict[str, Any]) -> dict[str, Any]:
    """As `accepts`, for a list of records that each have an id besides the fields."""
    fields = {"$ref": f"#/components/schemas/{model.__name__}"}
    number = {"type": "integer", "minimum": 1, "maximum": INT64}
    named = {"type": "object", "required": ["id"], "properties": {"id": number}}
    schema = {
        "type": "array",
        "items": {"allOf": [fields, named]},
        "minItems": 1,
        "maxItems": MOST_LISTED,
    }
    content = {"application/json": {"schema": schema, "example": [example]}}
    return {"requestBody": {"required": True, "content": content}}


async def read_json(request: Request, longest: int) -> Any:
    """The JSON of the body. Raises ApiError: 415, 413 over `longest` bytes, 408, 400."""
    kind, _, parameters = request.headers.get("content-type", "application/json").partition(";")
    charset = parameters.strip().lower().removeprefix("charset=").strip('" ')
    if kind.strip().lower() != "application/json" or charset not in ("", "utf-8", "utf8"):
        raise ApiError(415, "the body must be application/json in UTF-8", headers=_CLOSE)
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
    """The body. Raises ApiError: 413 past `longest` bytes, 408, 400."""
    too_large = ApiError(413, f"the body is larger than {longest} bytes", headers=_CLOSE)
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > longest:
        raise too_large
    raw = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for piece in request.stream():
                raw += piece
                if len(raw) > longest:
                    raise too_large
    except TimeoutError:
        raise ApiError(408, "the body took too long", headers=_CLOSE) from None
    except ClientDisconnect:
        raise ApiError(400, "the body ended too soon", headers=_CLOSE) from None
    return bytes(raw)


def accepted(
    model: type[Fields], body: Any, *, place: str = "", conflicts: Conflicts = lambda _: ()
) -> dict[str, Any]:
    """The values of the fields in an object, by attribute. Raises ApiError, 400 with every fault.

    `conflicts` finds faults in the combination of fields. Names that `model` does not know are
    ignored, because clients send back the records that they have read.
    """
    if not isinstance(body, dict):
        raise ApiError(400, "the body is not a JSON object", fields={"body": _ACCEPTED})
    faults = Faults()
    values = read_fields(model, body, place=place, faults=faults)
    faults.note_conflicts(place, conflicts(values))
    refuse([(fault.place, fault.message) for fault in faults])
    return values


def accepted_list(model: type[Fields], body: Any) -> list[dict[str, Any]]:
    """As `accepted`, for a list of objects. The names of faults begin with an index: [3].name."""
    good = isinstance(body, list) and 1 <= len(body) <= MOST_LISTED
    if not good or not all(isinstance(each, dict) for each in body):
        raise bad_fields({"body": f"accepted: an object, or a list of 1 to {MOST_LISTED} objects"})
    faults = Faults()
    values = [
        read_fields(model, each, place=f"[{number}]", faults=faults)
        for number, each in enumerate(body)
    ]
    refuse([(fault.place, fault.message) for fault in faults])
    return values


def refuse(faults: Iterable[tuple[str, str]]) -> None:
    """Raise ApiError 400 if there are faults, pairs of a field and a message."""
    by_place: dict[str, str] = {}
    for place, message in faults:
        before = by_place.get(place)
        by_place[place] = f"{before}; {message}" if before else message
    if by_place:
        raise bad_fields(by_place)
