"""How an operation is told in the document: what it takes, answers and refuses."""

import re
from typing import Any

_ERROR = {"$ref": "#/components/schemas/Error"}
_AUTH_ERROR = {"$ref": "#/components/schemas/AuthenticationError"}
_REASONS = {
    400: "The request is not accepted; `fields` names each bad field and what it accepts.",
    401: "No session: a header is missing, or the session has ended.",
    403: "The account's permission is too low.",
    404: "No such record in the account's company.",
    408: "The body took too long to arrive.",
    409: "In conflict with another record.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    429: "Too many attempts to sign in; `retry-after` says how many seconds to wait.",
    503: "Not now: the database does not answer, or too many ask at once.",
}
_MESSAGES = {
    400: "not accepted: name",
    401: "no session",
    403: "needs level 2 in the permission area campaign",
    404: "no such venue",
    408: "the body took too long",
    409: "the triple uuid, major, minor is taken",
    413: "the body is larger than 1048576 bytes",
    415: "the body must be application/json in UTF-8",
    429: "too many attempts to sign in",
    503: "the database does not answer",
}
_IN_TURNS = "It is under way already; `retry-after` says how many seconds to wait."
_BUSY = "the company's connector is being tested already"
_SIGN_IN_MESSAGES = _MESSAGES | {404: "no user matches"}
_WITH_BODY = (400, 408, 413, 415)


def operation(
    summary: str,
    *,
    tag: str,
    answers: str,
    many: bool = False,
    body: str | None = None,
    status: int = 200,
    conflicts: str | None = None,
    own: bool = False,
    tries: bool = False,
    csv: bool = False,
    turns: bool = False,
) -> dict[str, Any]:
    """The keywords of a route.

    `answers` and `body` name schemas; `many` answers an array; what is the account's `own` needs
    no level; what `tries` a password may try too often; `csv` is another form of the answer;
    what is done in `turns` may be under way already.
    """
    errors = {} if tag == "session" else _errors(401) if own else _errors(401, 403)
    errors |= _errors(400, 503) if own else _errors(400, 404, 503)
    if tries:
        errors |= _errors(429)
    if turns:
        errors |= {429: _refusal(429, _IN_TURNS, told_as=_BUSY)}
    if body is not None:
        errors |= _errors(*_WITH_BODY)
    if conflicts is not None:
        errors |= {409: _refusal(409, conflicts)}
    if tag == "session":
        statuses = {status: _REASONS[status] for status in (*errors, 429)}
        statuses[404] = "No user matches."
        errors = {
            status: _refusal(status, reason, signing_in=True) for status, reason in statuses.items()
        }
    schema: dict[str, Any] = {"$ref": f"#/components/schemas/{answers}"}
    if many:
        schema = {"type": "array", "items": schema}
    good = _response("Success.", schema)
    if csv:
        good["content"]["text/csv"] = {"schema": {"type": "string"}}
    return {
        "summary": summary,
        # Generated clients name their functions by it.
        "operation_id": re.sub(r"[^a-z]+", "_", summary.lower()),
        "tags": [tag],
        "status_code": status,
        "responses": {status: good, **errors},
        "openapi_extra": _extra(body, tag),
    }


def _errors(*statuses: int) -> dict[int, Any]:
    return {status: _refusal(status, _REASONS[status]) for status in statuses}


def _refusal(
    status: int, description: str, *, signing_in: bool = False, told_as: str | None = None
) -> dict[str, Any]:
    """An answer that is an error, with an example of it."""
    told = _response(description, _AUTH_ERROR if signing_in else _ERROR)
    text, messages = ("message", _MESSAGES)
    if signing_in:
        text, messages = ("error_message", _SIGN_IN_MESSAGES)
    example: dict[str, Any] = {
        "status": "error",
        text: told_as or messages[status],
        "code": status,
    }
    if status == 400:
        example["fields"] = {"name": "required"}
    told["content"]["application/json"]["example"] = example
    return told


def _response(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _extra(body: str | None, tag: str) -> dict[str, Any]:
    extra: dict[str, Any] = {"security": []} if tag == "session" else {}
    if body is not None:
        schema = {"$ref": f"#/components/schemas/{body}"}
        content = {"application/json": {"schema": schema}}
        extra["requestBody"] = {"required": True, "content": content}
    return extra
